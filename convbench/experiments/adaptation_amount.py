"""Estimate what adaptations to self-edits take: for rewards, as baselines, of many passages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convbench import catalog
from convbench.engine.budget import usual_prompt
from convbench.experiments.amounts import ResourceEstimate
from convbench.experiments.seal import SealArgs
from convbench.judges.adaptation.closed_book import questions_of
from convbench.judges.adaptation.grader import GRADE_TOKENS, prompt_of
from convbench.judges.adaptation.runner import AdaptationSettings, inner_settings_of, settings_of
from convbench.judges.adaptation.settings import InnerSettings, count_steps
from convbench.judges.kinds import kind_of
from convbench.judges.resolve import Judge
from convbench.learn.plan import FLOPS
from convbench.rollout.preview import Preview, call_price, reasoning_headroom
from convbench.schema import Example, ProtocolSpec, TaskSpec
from convbench.tasks.arc_agi.edit import MOST_STEPS

TRAIN_OPERATIONS = 6
"""Operations for each weight and token of an adaptation."""
STEP_S = 0.1
"""Least seconds of one step of an adaptation: its batch is too small for `FLOPS`."""
LINE_TOKENS = 40
"""Tokens of a self-edit that become one text."""


@dataclass(frozen=True)
class AdaptationEstimate:
    """Estimator of one judge's adaptations to the self-edits of a run."""

    judge: Judge
    task: TaskSpec
    examples: Sequence[Example]
    shown: Preview
    """Preview of the self-edits."""
    learner: str
    """Model that learns."""
    weights: int | None
    """Number of its weights."""
    folders: Sequence[Path]
    """Folders of specs."""

    def edits_amount(self, counts: Mapping[str, int]) -> ResourceEstimate:
        """Return what it takes to learn so many self-edits of each split, each alone, and to ask
        before and after."""
        count = sum(counts.values())
        if kind_of(self.judge.spec).measures == "solutions":
            return self._hours_and_grades(
                count * self._work_seconds(MOST_STEPS, 2 * self.shown.longest_tokens, 0)
            )
        settings = settings_of(self.judge)
        inner = settings.inner
        seconds = self._learning_seconds(self._count_texts(inner), self.shown.longest_tokens, inner)
        grades = sum(n * self._mean_questions(split) for split, n in counts.items())
        guard = settings.guard if settings.penalty else 0
        return self._hours_and_grades(
            count * seconds, settings, grades * (inner.seeds * (1 + guard) + 1)
        )

    def baselines_amount(self) -> ResourceEstimate:
        """Return what the baselines on the test passages take: the policy as it is, and the passage
        alone or the best known settings and one edit for all."""
        tests = self._count_tests()
        if kind_of(self.judge.spec).measures == "solutions":
            return self.edits_amount({"test": 3 * tests})
        settings = settings_of(self.judge)
        alone = 0 if settings.train_only else 1
        seconds = self._learning_seconds(1, self.shown.longest_tokens, settings.inner)
        grades = tests * self._mean_questions("test") * (1 + alone * settings.inner.seeds)
        return self._hours_and_grades(tests * alone * seconds, settings, grades)

    def passages_amount(self, args: SealArgs, sources: int) -> ResourceEstimate:
        """Return what it takes to learn many test passages from so many sources of training data,
        at once, and from three of them one after the other."""
        settings, tests = settings_of(self.judge), self._count_tests()
        questions, longest = self._mean_questions("test"), self.shown.longest_tokens
        pretraining = inner_settings_of(self.judge, "pretraining")
        edits = tests * args.pretraining
        seconds = self._learning_seconds(
            edits * self._count_texts(pretraining), edits * longest, pretraining
        )
        at_once = sources if edits else 0
        total = self._hours_and_grades(
            at_once * seconds, settings, at_once * tests * questions * pretraining.seeds
        )
        single = settings.inner.model_copy(update={"seeds": 1})
        writing = (self.shown.replies + 2 * single.max_tokens) * STEP_S / 4
        lessons = 3 * args.sequences * args.length
        grades = lessons * questions * (2 + (args.length + 1) / 2)  # before; all so far, after
        seconds = self._learning_seconds(self._count_texts(single), longest, single) + writing
        total.add(self._hours_and_grades(lessons * seconds, settings, grades))
        return total

    def _count_texts(self, inner: InnerSettings) -> int:
        """Return the number of texts of an edit with its passage."""
        return 2 if inner.texts == "whole" else 1 + math.ceil(self.shown.replies / LINE_TOKENS)

    def _count_tests(self) -> int:
        return sum(example.split == "test" for example in self.examples)

    def _learning_seconds(self, texts: int, tokens: int, inner: InnerSettings) -> float:
        """Return the seconds of one adaptation of all seeds to texts of so many tokens together."""
        steps = count_steps(texts, inner) * inner.seeds
        return self._work_seconds(steps, tokens * inner.epochs * inner.seeds, inner.max_tokens)

    def _work_seconds(self, steps: int, tokens: int, written: int) -> float:
        """Return the seconds of steps over so many tokens, and of answers in one batch."""
        fitting = TRAIN_OPERATIONS * (self.weights or 0) * tokens / FLOPS
        return max(steps * STEP_S, fitting) + written * STEP_S / 4

    def _hours_and_grades(
        self, seconds: float, settings: AdaptationSettings | None = None, grades: float = 0.0
    ) -> ResourceEstimate:
        """Return the hours, and the grades if a model gives them, one call each."""
        amount = ResourceEstimate(
            hours=seconds / 3600 if self.weights else 0.0,
            unweighed=set() if self.weights else {self.learner},
        )
        if settings is None or settings.grader is None or settings.inner.grade != "model":
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
