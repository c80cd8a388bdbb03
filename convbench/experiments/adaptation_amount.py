"""Estimate the grades that adaptations to self-edits ask for: for rewards, as baselines, of many
passages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convbench import catalog
from convbench.experiments.amounts import ResourceEstimate
from convbench.experiments.seal import SealArgs
from convbench.judges.adaptation.closed_book import questions_of
from convbench.judges.adaptation.grader import GRADE_TOKENS, prompt_of
from convbench.judges.adaptation.runner import AdaptationSettings, inner_settings_of, settings_of
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.rollout.preview import call_price, reasoning_headroom
from convbench.schema import Example, ProtocolSpec, TaskSpec, usual_prompt


@dataclass(frozen=True)
class AdaptationEstimate:
    """Estimator of one judge's adaptations to the self-edits of a run."""

    judge: Judge
    task: TaskSpec
    examples: Sequence[Example]
    folders: Sequence[Path]
    """Folders of specs."""

    def edits_amount(self, counts: Mapping[str, int]) -> ResourceEstimate:
        """Return what it takes to grade so many self-edits of each split, each alone, before and
        after it is learnt."""
        if kind_of(self.judge.spec).measures == "solutions":
            return ResourceEstimate()
        settings = settings_of(self.judge)
        grades = sum(n * self._mean_questions(split) for split, n in counts.items())
        guard = settings.guard if settings.penalty else 0
        return self._grades(settings, grades * (settings.inner.seeds * (1 + guard) + 1))

    def baselines_amount(self) -> ResourceEstimate:
        """Return what the baselines on the test passages take: the policy as it is, and the passage
        alone."""
        if kind_of(self.judge.spec).measures == "solutions":
            return ResourceEstimate()
        settings, tests = settings_of(self.judge), self._count_tests()
        alone = 0 if settings.train_only else 1
        grades = tests * self._mean_questions("test") * (1 + alone * settings.inner.seeds)
        return self._grades(settings, grades)

    def passages_amount(self, args: SealArgs, sources: int) -> ResourceEstimate:
        """Return what it takes to grade many test passages that are learnt from so many sources of
        training data, at once, and from three of them one after the other."""
        settings, tests = settings_of(self.judge), self._count_tests()
        questions = self._mean_questions("test")
        pretraining = inner_settings_of(self.judge, "pretraining")
        at_once = sources if args.pretraining else 0
        total = self._grades(settings, at_once * tests * questions * pretraining.seeds)
        lessons = 3 * args.sequences * args.length
        grades = lessons * questions * (2 + (args.length + 1) / 2)  # before; all so far, after
        total.add(self._grades(settings, grades))
        return total

    def _count_tests(self) -> int:
        return sum(example.split == "test" for example in self.examples)

    def _grades(self, settings: AdaptationSettings, grades: float) -> ResourceEstimate:
        """Return the grades, one call each, if a model gives them."""
        amount = ResourceEstimate()
        if settings.grader is None or settings.inner.grade != "model":
            return amount
        protocol = catalog.load_spec(
            ProtocolSpec, "protocols", settings.protocol, specs=self.folders
        )
        fence = self.judge.spec.fence or "none"
        texts = [
            prompt_of(question, "", fence)
            for example in self.examples
            if example.hidden.get("questions")
            for question in questions_of(self.task, example, protocol)
        ]
        prompt = usual_prompt([{"role": "user", "content": max(texts, key=len, default="")}])
        prompt += settings.inner.max_tokens
        reply = GRADE_TOKENS + reasoning_headroom(settings.grader, self.folders)
        price, calls = call_price(settings.grader, prompt, reply, self.folders), math.ceil(grades)
        amount.calls, amount.tokens = calls, calls * (prompt + reply)
        amount.usd = calls * (price or 0.0)
        amount.unpriced = set() if price is not None else {settings.grader}
        return amount

    def _mean_questions(self, split: str) -> float:
        """Return the mean number of questions of a split's passages; 0 without any."""
        counts = [
            len(example.hidden.get("questions") or ())
            for example in self.examples
            if example.split == split
        ]
        return sum(counts) / len(counts) if counts else 0.0
