"""One learner, adapted to the self-edits of a run; what is finished is kept in the run."""

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
    """Model that learns: a path, a Hub id or a reference that names weights. Null takes the policy
    that wrote the edit or, where that one's weights are not at hand (a provider's model), the
    policy that it is compared with: that of the run's parent."""
    protocol: Name = "closed-book"
    """Protocol whose first step asks a question; it gets title and question, nothing else."""
    penalty: float = Field(default=0.0, ge=0)
    """Times the accuracy lost on other passages, subtracted from the reward."""
    guard: int = Field(default=0, ge=0)
    """Other passages of the same split whose questions are asked before and after, for the
    penalty."""
    grader: str | None = None
    """Judge model of `inner.grade: model`."""
    writes: Name | None = None
    """Protocol under which the unadapted learner writes the questions of passages that come with
    none (`self-edit-self-qa`); null refuses such passages."""
    writes_tokens: int = Field(default=512, ge=1)
    """Longest such reply in tokens; greedy."""
    inner: Inner = Inner()
    """The inner loop."""
    pretraining: dict[str, Any] = Field(default_factory=lambda: dict(CPT))
    """Values of `inner` for continued pre-training on many passages at once."""
    rewrite: bool = True
    """Passages one after the other: each edit is written by the policy as merged so far, as in the
    paper; false takes the edits that the run holds."""
    continual: dict[str, Any] = Field(default_factory=dict)
    """Values of `inner` for passages learnt one after the other."""


def settings_of(judge: Judge) -> Settings:
    """Return the judge's settings; SpecError where they are wrong."""
    return catalog.check(Settings, dict(judge.spec.args), f"judge {judge.name}: args")


@dataclass(frozen=True)
class Learning:
    """Who learns: where the weights lie, and their fingerprint."""

    path: str
    fingerprint: str

    @classmethod
    def of(cls, run: Run, learner: str | None) -> Learning:
        """The learner named, else as `Settings.learner` says; TrainError where weights are
        nowhere."""
        model = learner or _own(run)
        path = named(model) or model
        check_model(path)
        return cls(path, weights_fingerprint(Path(path).expanduser()) or path)


def _own(run: Run) -> str:
    """Return where the weights of a run's policy lie, or else those of its parent's."""
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
    """Adapts one learner to the self-edits of a run; several threads may ask it at once."""

    run: Run
    settings: Settings
    learning: Learning
    protocol: ProtocolSpec
    kept: cache.Cache[Outcome]
    fence: Fence = "none"
    """How a grader is shown what was answered."""
    grade: Grade | None = None
    devices: tuple[str, ...] = ()
    """Devices of the processes that learn side by side; none: it is done here."""
    _before: dict[str, float] = field(default_factory=dict)
    _written: dict[str, Example] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.twins = Twins(self.learning.path, self.devices)

    def outcome(self, example: Example, edit: str | None) -> Outcome:
        """Return what an edit taught (None: the passage alone), from the cache where it is there.

        An edit without a line to train on is no improvement, with its reason.
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
        """Return what texts teach, from the cache where it is there."""
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
        """Return the name under which an adaptation is kept."""
        settings = self.settings
        inner, grader = settings.inner, settings.grader
        own = self.learning.fingerprint
        return cache.key(own, texts, questions, inner, grader, guard, self.fence)

    def before(self, example: Example) -> float:
        """Return the unadapted policy's accuracy on a passage's questions."""
        with self._lock:  # asked once, whichever thread comes first
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
        """Return a passage's questions, written by the unadapted learner where it has none."""
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
        """Return what `work` does with each example, one at a time in each process that learns."""
        with ThreadPoolExecutor(max(1, len(self.devices)), "adaptation") as threads:
            return list(threads.map(work, examples))

    def others(self, example: Example) -> list[Example]:
        """Return the passages that guard against regressions: of this one's split, so that no
        test question has a part in a reward that trains."""
        if not self.settings.penalty:
            return []
        found = [
            other
            for name, other in sorted(self.run.examples.items())
            if name != example.example_id and other.split == example.split
        ]
        return found[: self.settings.guard]

    def guard(self, example: Example) -> list[Question]:
        """Return the questions of the passages that guard this one."""
        return [q for other in self.others(example) for q in self.questions(other)]

    def lost(self, example: Example, outcome: Outcome) -> float:
        """Return the accuracy lost on the guarding passages; 0 or more."""
        if outcome.guarded is None:
            return 0.0
        counts = [(self.before(o), len(self.questions(o))) for o in self.others(example)]
        before = sum(value * n for value, n in counts) / sum(n for _, n in counts)
        return max(0.0, before - outcome.guarded)

    def ready(self) -> Learner:
        """Return this thread's twin of the learner, which is loaded with the first call."""
        return self.twins.own()

    def graded(self) -> Grade:
        """Return how answers are graded."""
        return self.grade or by_rule(self.settings.inner)


def open_runner(
    run: Run,
    settings: Settings,
    kept: cache.Cache[Outcome],
    devices: tuple[str, ...] = (),
    fence: Fence = "none",
) -> Runner:
    """Return a runner for the run; nothing is loaded yet."""
    protocol = catalog.load(ProtocolSpec, "protocols", settings.protocol)
    learning = Learning.of(run, settings.learner)
    return Runner(run, settings, learning, protocol, kept, fence, devices=devices)


def devices_for(calls: CallOptions) -> tuple[str, ...]:
    """Return the devices that adaptations are spread over, those of the judge; "" is the CPU. None
    where nothing is said of them."""
    found = placement(calls, "judge")
    if found is None or found.names is None:
        return ()
    return found.names or ("",)


def threads_for(calls: CallOptions, devices: Sequence[str]) -> int:
    """Return how many adaptations go at once: one a device, else one, unless the user says."""
    if devices:
        return min(len(devices), calls.concurrency or len(devices))
    return calls.concurrency or 1


def cache_of(run: Run) -> cache.Cache[Outcome]:
    """Open the run's finished adaptations."""
    return cache.Cache(run.path / "adaptations.jsonl", Outcome)
