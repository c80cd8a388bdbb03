"""Adapt one learner to the self-edits of a run; finished adaptations are cached in the run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field

from convbench import catalog
from convbench.errors import DataError, RunError, TrainError
from convbench.judge.adaptation import cache
from convbench.judge.adaptation.closed_book import questions_of, with_own_questions
from convbench.judge.adaptation.learner import Grade, Learner, Outcome, Question, by_rule
from convbench.judge.adaptation.pool import Twins
from convbench.judge.adaptation.settings import Inner, training_texts
from convbench.judge.resolve import Judge
from convbench.models.where import check_model, named, policy_weights, weights_fingerprint
from convbench.options.shared import CallOptions
from convbench.rollout.calls import placement
from convbench.schema import Example, ProtocolSpec
from convbench.schema.judge import Fence
from convbench.schema.noun import Name, Noun
from convbench.store import Run

T = TypeVar("T")
CPT: Mapping[str, Any] = {
    "epochs": 3,
    "learning_rate": 1e-3,
    "batch_size": 4,
    "accumulation": 2,
    "texts": "whole",
}
"""Continued pre-training of Zweiger et al. 2025 (SEAL)."""


class Settings(Noun):
    """`args` of an adaptation judge."""

    learner: str | None = None
    """Model that learns: a path, a Hub id or a reference to weights. Null takes the policy that
    wrote the edit or, if its weights are not available (a provider's model), the policy that it is
    compared with: that of the run's parent."""
    protocol: Name = "closed-book"
    """Protocol whose first step asks a question; it gets title and question, nothing else."""
    penalty: float = Field(default=0.0, ge=0)
    """Factor of the accuracy lost on other passages, which is subtracted from the reward."""
    guard: int = Field(default=0, ge=0)
    """Number of other passages of the same split whose questions are asked before and after, for
    the penalty."""
    grader: str | None = None
    """Judge model of `inner.grade: model`."""
    writes: Name | None = None
    """Protocol with which the unadapted learner writes the questions of passages that have none
    (`self-edit-self-qa`); null refuses such passages."""
    writes_tokens: int = Field(default=512, ge=1)
    """Longest such reply in tokens; decoding is greedy."""
    inner: Inner = Inner()
    """The inner loop."""
    pretraining: dict[str, Any] = Field(default_factory=lambda: dict(CPT))
    """Values of `inner` for continued pre-training on many passages at once."""
    rewrite: bool = True
    """For passages one after the other: each edit is written by the policy as merged so far, as in
    the paper; false takes the edits in the run."""
    continual: dict[str, Any] = Field(default_factory=dict)
    """Values of `inner` for passages one after the other."""


def settings_of(judge: Judge) -> Settings:
    """Return the judge's settings. Raises SpecError for invalid ones."""
    return catalog.check(Settings, dict(judge.spec.args), f"judge {judge.name}: args")


@dataclass(frozen=True)
class Learning:
    """The weights that learn: their path or Hub id, and their fingerprint."""

    path: str
    fingerprint: str

    @classmethod
    def of(cls, run: Run, learner: str | None) -> Learning:
        """Return the named learner, else the run's policy (or its parent's). Raises TrainError if
        no weights are available."""
        model = learner or _own(run)
        path = named(model) or model
        check_model(path)
        return cls(path, weights_fingerprint(Path(path).expanduser()) or path)


def _own(run: Run) -> str:
    """Return the path of the weights of a run's policy, else of its parent's. Raises TrainError."""
    try:
        return policy_weights(run.manifest)
    except TrainError:
        try:
            parent = Run.open(run.path.parent.parent)
        except RunError:
            parent = None
        if parent is None or parent.manifest.id != run.manifest.parent:
            policy = run.manifest.cast[run.manifest.protocol.policy].model
            raise TrainError(
                f"run {run.manifest.id}: the edits are by {policy!r}, whose weights are not at "
                "hand; name the model that learns from them: --set judge.args.learner=local:PATH "
                "(or a Hub id)"
            ) from None
        return policy_weights(parent.manifest)


@dataclass
class Runner:
    """Adapts one learner to the self-edits of a run; safe to use from several threads."""

    run: Run
    settings: Settings
    learning: Learning
    protocol: ProtocolSpec
    kept: cache.Cache[Outcome]
    fence: Fence = "none"
    """How answers are quoted for a grading model."""
    grade: Grade | None = None
    """Grade function of a model; None to grade by rule."""
    devices: tuple[str, ...] = ()
    """Devices with a learning process each; empty to learn in this process."""
    _before: dict[str, float] = field(default_factory=dict)
    _written: dict[str, Example] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.twins = Twins(self.learning.path, self.devices)

    def outcome(self, example: Example, edit: str | None) -> Outcome:
        """Return the outcome of an edit (None: the passage alone), from the cache if it is there.

        An edit without a line to train on is no improvement, with a reason.
        """
        before = self.before(example)
        title, passage = (str(example.inputs.get(name, "")) for name in ("title", "passage"))
        try:
            texts = training_texts(edit, title, passage, self.settings.inner)
        except DataError as error:
            return Outcome(before, before, reason=str(error))
        guard = [] if edit is None else self.guard(example)
        return self.kept_or_adapted(texts, self.questions(example), before, guard)

    def kept_or_adapted(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        before: float | None = None,
        guard: Sequence[Question] = (),
    ) -> Outcome:
        """Return the outcome of training on texts, from the cache if it is there."""
        inner = self.settings.inner
        name = self.key(texts, questions, guard)
        found = self.kept.get(name)
        if found is None:
            with self.twins.pupil() as pupil:
                found = pupil.adapt(
                    texts, questions, inner, self.graded(), before=before, guard=guard
                )
            self.kept.put(name, found)
        return found

    def key(
        self, texts: Sequence[str], questions: Sequence[Question], guard: Sequence[Question] = ()
    ) -> str:
        """Return the cache key of an adaptation."""
        settings = self.settings
        inner, grader = settings.inner, settings.grader
        own = self.learning.fingerprint
        return cache.key(own, texts, questions, inner, grader, guard, self.fence)

    def before(self, example: Example) -> float:
        """Return the unadapted policy's accuracy on a passage's questions."""
        with self._lock:  # so that only one thread asks
            if example.example_id not in self._before:
                questions = self.questions(example)
                name = self.key([], questions)
                found = self.kept.get(name)
                if found is None:
                    with self.twins.pupil() as pupil:
                        value = pupil.before(questions, self.settings.inner, self.graded())
                    found = Outcome(value, value)
                    self.kept.put(name, found)
                self._before[example.example_id] = found.accuracy
            return self._before[example.example_id]

    def questions(self, example: Example) -> list[Question]:
        """Return a passage's questions; the unadapted learner writes them if it has none."""
        task, writes = self.run.manifest.task, self.settings.writes
        if writes is not None and not example.hidden.get("questions"):
            with self._lock:
                if example.example_id not in self._written:
                    protocol = catalog.load(ProtocolSpec, "protocols", writes)
                    self._written[example.example_id] = with_own_questions(
                        task,
                        example,
                        protocol,
                        lambda said: self.ready().write(said, self.settings.writes_tokens),
                    )
                example = self._written[example.example_id]
        return questions_of(task, example, self.protocol)

    def spread(self, work: Callable[[Example], T], examples: Sequence[Example]) -> list[T]:
        """Return `work` of each example, computed one at a time for each learning process."""
        with ThreadPoolExecutor(max(1, len(self.devices)), "adaptation") as threads:
            return list(threads.map(work, examples))

    def others(self, example: Example) -> list[Example]:
        """Return the passages that guard against regressions. They are of the example's split, so
        that no test question affects a reward for training."""
        if not self.settings.penalty:
            return []
        found = [
            other
            for name, other in sorted(self.run.examples.items())
            if name != example.example_id and other.split == example.split
        ]
        return found[: self.settings.guard]

    def guard(self, example: Example) -> list[Question]:
        """Return the questions of the passages that guard against regressions."""
        return [q for other in self.others(example) for q in self.questions(other)]

    def lost(self, example: Example, outcome: Outcome) -> float:
        """Return the accuracy lost on the guarding passages, at least 0."""
        if outcome.guarded is None:
            return 0.0
        counts = [(self.before(o), len(self.questions(o))) for o in self.others(example)]
        before = sum(value * n for value, n in counts) / sum(n for _, n in counts)
        return max(0.0, before - outcome.guarded)

    def ready(self) -> Learner:
        """Return this thread's twin of the learner, which is loaded at the first call."""
        return self.twins.own()

    def graded(self) -> Grade:
        """Return the grade function: the model's, else the rule of the settings."""
        return self.grade or by_rule(self.settings.inner)


def open_runner(
    run: Run,
    settings: Settings,
    kept: cache.Cache[Outcome],
    devices: tuple[str, ...] = (),
    fence: Fence = "none",
) -> Runner:
    """Return a runner for the run; weights are loaded at first use."""
    protocol = catalog.load(ProtocolSpec, "protocols", settings.protocol)
    learning = Learning.of(run, settings.learner)
    return Runner(run, settings, learning, protocol, kept, fence, devices=devices)


def devices_for(calls: CallOptions) -> tuple[str, ...]:
    """Return the devices of the judge, over which adaptations are spread; "" is the CPU. Empty if
    the user sets none."""
    found = placement(calls, "judge")
    if found is None or found.names is None:
        return ()
    return found.names or ("",)


def threads_for(calls: CallOptions, devices: Sequence[str]) -> int:
    """Return the number of concurrent adaptations: one a device, else one, or as the user sets."""
    if devices:
        return min(len(devices), calls.concurrency or len(devices))
    return calls.concurrency or 1


def cache_of(run: Run) -> cache.Cache[Outcome]:
    """Return the cache of the run's finished adaptations."""
    return cache.Cache(run.path / "adaptations.jsonl", Outcome)
