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
from convbench.judges.adaptation import cache
from convbench.judges.adaptation.closed_book import questions_of, with_own_questions
from convbench.judges.adaptation.learner import (
    AdaptationOutcome,
    Grade,
    Learner,
    Question,
    rule_grade,
)
from convbench.judges.adaptation.pool import LearnerPool
from convbench.judges.adaptation.settings import InnerSettings, training_texts
from convbench.judges.resolve import Judge
from convbench.models.weights_path import (
    check_model,
    member_weights,
    weights_fingerprint,
    weights_of,
)
from convbench.options.shared import CallOptions
from convbench.rollout.calls import device_placement
from convbench.schema import Example, ProtocolSpec
from convbench.schema.base import FrozenModel, Name
from convbench.schema.judge import Fence
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


class AdaptationSettings(FrozenModel):
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
    train_only: bool = False
    """Whether only edits of train passages are learnt alone, for their rewards: those of the others
    are then measured by one training on all of them (`pretraining`)."""
    inner: InnerSettings = InnerSettings()
    """The inner loop."""
    pretraining: dict[str, Any] = Field(default_factory=lambda: dict(CPT))
    """Values of `inner` for continued pre-training on many passages at once."""
    rewrite: bool = True
    """For passages one after the other: each edit is written by the policy as merged so far, as in
    the paper; false takes the edits in the run."""
    continual: dict[str, Any] = Field(default_factory=dict)
    """Values of `inner` for passages one after the other."""


def settings_of(judge: Judge) -> AdaptationSettings:
    """Return the judge's settings. Raises SpecError for invalid ones."""
    return catalog.check_spec(
        AdaptationSettings, dict(judge.spec.args), f"judge {judge.name}: args"
    )


def inner_settings_of(judge: Judge, field: str, **values: float) -> InnerSettings:
    """Return the inner loop's settings with the judge's changes in this field (`pretraining` or
    `continual`), and these values. Raises SpecError for invalid ones."""
    settings = settings_of(judge)
    own = {**settings.inner.model_dump(), **getattr(settings, field), **values}
    return catalog.check_spec(InnerSettings, own, f"judge {judge.name}: args.{field}")


@dataclass(frozen=True)
class LearnerRef:
    """The weights that learn: their path or Hub id, and their fingerprint."""

    path: str
    fingerprint: str

    @classmethod
    def of_run(cls, run: Run, learner: str | None) -> LearnerRef:
        """Return the named learner, else the run's policy, else, if its weights are not available,
        that of the parent run.

        The fingerprint is that of the weights' files, or the Hub id. Raise TrainError if no weights
        are available.
        """
        model = learner or _policy_path(run)
        path = weights_of(model) or model
        check_model(path)
        return cls(path, weights_fingerprint(Path(path).expanduser()) or path)


def _policy_path(run: Run) -> str:
    """Return the path of the weights of a run's policy, else of its parent's. Raises TrainError."""
    try:
        return member_weights(run.manifest.policy_member)
    except TrainError:
        try:
            parent = Run.open(run.path.parent.parent)
        except RunError:
            parent = None
        if parent is None or parent.manifest.id != run.manifest.parent:
            policy = run.manifest.cast[run.manifest.protocol.policy].model
            raise TrainError(
                f"run {run.manifest.id}: the edits were written by {policy!r}, whose weights "
                "are not available; name the model to train: --set judge.args.learner=local:PATH "
                "(or a Hub id)"
            ) from None
        return member_weights(parent.manifest.policy_member)


@dataclass
class AdaptationRunner:
    """Adapts one learner to the self-edits of a run; safe to use from several threads."""

    run: Run
    settings: AdaptationSettings
    learning: LearnerRef
    protocol: ProtocolSpec
    outcome_cache: cache.WorkCache[AdaptationOutcome]
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
        self.learner_pool = LearnerPool(self.learning.path, self.devices)

    def edit_outcome(self, example: Example, edit: str | None) -> AdaptationOutcome:
        """Return the outcome of an edit (None: the passage alone), from the cache if it is there,
        else trained and added to the cache.

        An edit without a line to train on has the accuracy before and a `reason`. Guarding
        questions are asked only for an edit. Raise DataError for a passage without questions.
        """
        before = self.unadapted_accuracy(example)
        title, passage = (str(example.inputs.get(name, "")) for name in ("title", "passage"))
        try:
            texts = training_texts(edit, title, passage, self.settings.inner)
        except DataError as error:
            return AdaptationOutcome(before, before, reason=str(error))
        guard = [] if edit is None else self.guard_questions(example)
        return self.cached_or_adapted(texts, self.passage_questions(example), before, guard)

    def cached_or_adapted(
        self,
        texts: Sequence[str],
        questions: Sequence[Question],
        before: float | None = None,
        guard: Sequence[Question] = (),
    ) -> AdaptationOutcome:
        """Return the outcome of training on texts, from the cache if it is there, else trained and
        added to the cache. `before` is measured if it is None."""
        inner = self.settings.inner
        name = self.adaptation_key(texts, questions, guard)
        outcome = self.outcome_cache.get(name)
        if outcome is None:
            with self.learner_pool.lend_learner() as pupil:
                outcome = pupil.adapt_to(
                    texts, questions, inner, self.grade_function(), before=before, guard=guard
                )
            self.outcome_cache.put(name, outcome)
        return outcome

    def adaptation_key(
        self, texts: Sequence[str], questions: Sequence[Question], guard: Sequence[Question] = ()
    ) -> str:
        """Return the cache key of an adaptation."""
        settings = self.settings
        inner, grader = settings.inner, settings.grader
        own = self.learning.fingerprint
        return cache.adaptation_key(own, texts, questions, inner, grader, guard, self.fence)

    def unadapted_accuracy(self, example: Example) -> float:
        """Return the unadapted policy's accuracy on a passage's questions, 0 to 1; it is measured
        once and kept in the cache. Raise DataError for a passage without questions."""
        with self._lock:  # so that only one thread asks
            if example.example_id not in self._before:
                questions = self.passage_questions(example)
                name = self.adaptation_key([], questions)
                outcome = self.outcome_cache.get(name)
                if outcome is None:
                    with self.learner_pool.lend_learner() as pupil:
                        value = pupil.unadapted_accuracy(
                            questions, self.settings.inner, self.grade_function()
                        )
                    outcome = AdaptationOutcome(value, value)
                    self.outcome_cache.put(name, outcome)
                self._before[example.example_id] = outcome.accuracy
            return self._before[example.example_id]

    def passage_questions(self, example: Example) -> list[Question]:
        """Return a passage's questions; if it has none and the settings name `writes`, the
        unadapted learner writes them, once. Raise DataError if there are none."""
        task, writes = self.run.manifest.task, self.settings.writes
        if writes is not None and not example.hidden.get("questions"):
            with self._lock:
                if example.example_id not in self._written:
                    protocol = catalog.load_spec(ProtocolSpec, "protocols", writes)
                    self._written[example.example_id] = with_own_questions(
                        task,
                        example,
                        protocol,
                        lambda messages: self.own_learner().write_reply(
                            messages, self.settings.writes_tokens
                        ),
                    )
                example = self._written[example.example_id]
        return questions_of(task, example, self.protocol)

    def spread_work(self, work: Callable[[Example], T], examples: Sequence[Example]) -> list[T]:
        """Return `work` of each example, in the order of `examples`, computed at the same time by
        one thread for each learning process, or by one thread without any."""
        with ThreadPoolExecutor(max(1, len(self.devices)), "adaptation") as threads:
            return list(threads.map(work, examples))

    def guarding_passages(self, example: Example) -> list[Example]:
        """Return the first `guard` other passages of the example's split, by id, which guard
        against regressions; empty if the settings have no penalty.

        They are of the same split, so that no test question affects a reward for training.
        """
        if not self.settings.penalty:
            return []
        passages = [
            other
            for name, other in sorted(self.run.examples.items())
            if name != example.example_id and other.split == example.split
        ]
        return passages[: self.settings.guard]

    def guard_questions(self, example: Example) -> list[Question]:
        """Return the questions of the passages that guard against regressions, passage by passage;
        empty without such passages."""
        return [
            q for other in self.guarding_passages(example) for q in self.passage_questions(other)
        ]

    def accuracy_lost(self, example: Example, outcome: AdaptationOutcome) -> float:
        """Return the accuracy on the guarding passages' questions before the edit minus that after
        it, at least 0; 0 if they were not asked."""
        if outcome.guarded is None:
            return 0.0
        counts = [
            (self.unadapted_accuracy(o), len(self.passage_questions(o)))
            for o in self.guarding_passages(example)
        ]
        before = sum(value * n for value, n in counts) / sum(n for _, n in counts)
        return max(0.0, before - outcome.guarded)

    def own_learner(self) -> Learner:
        """Return this thread's twin of the learner, which is loaded at the first call."""
        return self.learner_pool.own_learner()

    def grade_function(self) -> Grade:
        """Return the grade function: the model's, else the rule of the settings."""
        return self.grade or rule_grade(self.settings.inner)


def open_runner(
    run: Run,
    settings: AdaptationSettings,
    outcome_cache: cache.WorkCache[AdaptationOutcome],
    devices: tuple[str, ...] = (),
    fence: Fence = "none",
) -> AdaptationRunner:
    """Return a runner for the run; weights are loaded at first use.

    Raise TrainError if the learner's weights are not available, SpecError if the settings' protocol
    cannot be loaded.
    """
    protocol = catalog.load_spec(ProtocolSpec, "protocols", settings.protocol)
    learning = LearnerRef.of_run(run, settings.learner)
    return AdaptationRunner(
        run, settings, learning, protocol, outcome_cache, fence, devices=devices
    )


def devices_for(calls: CallOptions) -> tuple[str, ...]:
    """Return the devices of the judge, over which adaptations are spread; "" is the CPU. Empty if
    the user sets none."""
    assignment = device_placement(calls, "judge")
    if assignment is None or assignment.names is None:
        return ()
    return assignment.names or ("",)


def threads_for(calls: CallOptions, devices: Sequence[str]) -> int:
    """Return the number of concurrent adaptations: with devices one for each, or fewer if the user
    sets a lower concurrency; without any the concurrency that the user sets, else 1."""
    if devices:
        return min(len(devices), calls.concurrency or len(devices))
    return calls.concurrency or 1


def cache_of(run: Run) -> cache.WorkCache[AdaptationOutcome]:
    """Return the cache of the run's finished adaptations, read from its `adaptations.jsonl`.

    Raise RunError for a record of another shape.
    """
    return cache.WorkCache(run.path / "adaptations.jsonl", AdaptationOutcome)
