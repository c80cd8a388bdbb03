"""Judge `adaptation`: train on every self-edit, ask closed book, write verdicts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field

from convbench import catalog, prompts
from convbench.adapt import cache
from convbench.adapt.learner import Grade, Learner, Outcome, Question, by_rule
from convbench.adapt.settings import Inner
from convbench.adapt.texts import training_texts
from convbench.adapt.written import pairs
from convbench.commands.calls import CallOptions, calling
from convbench.commands.cast import weights_fingerprint
from convbench.commands.grading import by_model
from convbench.commands.judging import Judged
from convbench.engine import Summary, run_jobs
from convbench.engine.status import Status
from convbench.errors import DataError, TrainError
from convbench.judge import Judge
from convbench.learn.base import check_model, named, policy_weights
from convbench.rewards import reward
from convbench.schema import Conversation, Example, Failure, ProtocolSpec, Verdict, text_of
from convbench.schema.base import Name, Noun
from convbench.schema.chat import Message
from convbench.store import Run
from convbench.store.jsonl import Appender
from convbench.views import policy_turns

LEAST = 1e-9
"""A gain above this is one."""


class Settings(Noun):
    """`args` of an adaptation judge."""

    learner: str | None = None
    """Model that learns: a path, a Hub id or a reference that names weights; null takes the policy
    that wrote the edit."""
    protocol: Name = "closed-book"
    """Protocol whose first step asks a question; it gets title and question, nothing else."""
    penalty: float = Field(default=0.0, ge=0)
    """Times the accuracy lost on other passages, subtracted from the reward."""
    guard: int = Field(default=0, ge=0)
    """Other passages whose questions are asked before and after, for the penalty."""
    grader: str | None = None
    """Judge model of `inner.grade: model`."""
    writes: Name | None = None
    """Protocol under which the unadapted learner writes the questions of passages that come with
    none (`self-edit-self-qa`); null refuses such passages."""
    writes_tokens: int = Field(default=512, ge=1)
    """Longest such reply in tokens; greedy."""
    inner: Inner = Inner()
    """The inner loop."""


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
        """The run's own policy, or the learner named; TrainError where weights are nowhere."""
        model = learner or policy_weights(run.manifest)
        path = named(model) or model
        check_model(path)
        return cls(path, weights_fingerprint(Path(path).expanduser()) or path)


def questions_of(run: Run, example: Example, protocol: ProtocolSpec) -> list[Question]:
    """Return a passage's questions as they are asked closed book.

    The template gets title and question alone, so that no passage can enter the prompt.
    """
    asked = example.hidden.get("questions") or []
    if not asked:
        raise DataError(
            f"example {example.example_id}: found no hidden field `questions`; expected some to "
            "measure an adaptation by (a task such as squad or pocket-notes), or a learner that "
            "writes them: --set judge.args.writes=self-edit-self-qa"
        )
    return [_question(run, example, protocol, item) for item in asked]


def _question(
    run: Run, example: Example, protocol: ProtocolSpec, item: Mapping[str, Any]
) -> Question:
    values = {"title": example.inputs.get("title", ""), "question": item["question"]}
    first = protocol.all_steps()[0]
    said = prompts.step(run.manifest.task, protocol, first, "standard", values)
    system = prompts.system(run.manifest.task, protocol, protocol.policy, "standard", values)
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": said or ""})
    golds = item.get("answers") or [item["answer"]]
    return Question(tuple(messages), tuple(map(str, golds)), str(item["question"]))


@dataclass
class Runner:
    """Adapts one learner to the self-edits of a run; outcomes are kept in `adaptations.jsonl`."""

    run: Run
    settings: Settings
    learning: Learning
    protocol: ProtocolSpec
    kept: cache.Cache
    grade: Grade | None = None
    learner: Learner | None = None
    _before: dict[str, float] = field(default_factory=dict)
    _written: dict[str, Example] = field(default_factory=dict)

    def outcome(self, example: Example, edit: str | None) -> Outcome:
        """Return what an edit taught (None: the passage alone), from the cache where it is there.

        An edit without a line to train on is no improvement, with its reason.
        """
        inner = self.settings.inner
        questions = self.questions(example)
        title, passage = (str(example.inputs.get(name, "")) for name in ("title", "passage"))
        try:
            texts = training_texts(edit, title, passage, inner)
        except DataError as error:
            before = self.before(example)
            return Outcome(before, before, reason=str(error))
        return self.kept_or_adapted(texts, questions, before=self.before(example))

    def kept_or_adapted(
        self, texts: Sequence[str], questions: Sequence[Question], before: float | None = None
    ) -> Outcome:
        """Return what texts teach, from the cache where it is there."""
        inner = self.settings.inner
        name = cache.key(self.learning.fingerprint, texts, questions, inner, self.settings.grader)
        found = self.kept.get(name)
        if found is None:
            found = self.ready().adapt(texts, questions, inner, self.graded(), before=before)
            self.kept.put(name, found)
        return found

    def before(self, example: Example) -> float:
        """Return the unadapted policy's accuracy on a passage's questions."""
        if example.example_id not in self._before:
            questions = self.questions(example)
            name = cache.key(
                self.learning.fingerprint, [], questions, self.settings.inner, self.settings.grader
            )
            found = self.kept.get(name)
            if found is None:
                value = self.ready().before(questions, self.settings.inner, self.graded())
                found = Outcome(value, value)
                self.kept.put(name, found)
            self._before[example.example_id] = found.accuracy
        return self._before[example.example_id]

    def questions(self, example: Example) -> list[Question]:
        """Return a passage's questions, written by the unadapted learner where it has none."""
        if self.settings.writes is None or example.hidden.get("questions"):
            return questions_of(self.run, example, self.protocol)
        if example.example_id not in self._written:
            protocol = catalog.load(ProtocolSpec, "protocols", self.settings.writes)
            task = self.run.manifest.task
            values = prompts.fields(example, task, "standard", 1)
            said = prompts.step(task, protocol, protocol.all_steps()[0], "standard", values)
            messages: list[Message] = [{"role": "user", "content": said or ""}]
            found = list(pairs(self.ready().write(messages, self.settings.writes_tokens)))
            hidden = {**example.hidden, "questions": found}
            self._written[example.example_id] = example.model_copy(update={"hidden": hidden})
        return questions_of(self.run, self._written[example.example_id], self.protocol)

    def ready(self) -> Learner:
        """Return the learner, loaded with the first call."""
        if self.learner is None:
            self.learner = Learner.load(self.learning.path)
        return self.learner

    def graded(self) -> Grade:
        """Return how answers are graded."""
        return self.grade or by_rule(self.settings.inner)

    def lost(self, example: Example, edit: str) -> float:
        """Return the accuracy lost on `guard` other passages by this edit; 0 or more."""
        others = [e for name, e in sorted(self.run.examples.items()) if name != example.example_id]
        others = others[: self.settings.guard]
        if not others or not self.settings.penalty:
            return 0.0
        inner = self.settings.inner
        title, passage = (str(example.inputs.get(name, "")) for name in ("title", "passage"))
        questions = [q for e in others for q in self.questions(e)]
        texts = training_texts(edit, title, passage, inner)
        found = self.kept_or_adapted(texts, questions)
        return max(0.0, found.before - found.accuracy)


def open_runner(run: Run, settings: Settings, kept: cache.Cache) -> Runner:
    """Return a runner for the run; nothing is loaded yet."""
    protocol = catalog.load(ProtocolSpec, "protocols", settings.protocol)
    return Runner(run, settings, Learning.of(run, settings.learner), protocol, kept)


def cache_of(run: Run) -> cache.Cache:
    """Open the run's finished adaptations."""
    return cache.Cache(run.path / "adaptations.jsonl")


def verdict_of(
    runner: Runner, judge: Judge, conversation: Conversation, example: Example
) -> Verdict:
    """Adapt to one self-edit and return the verdict."""
    protocol = runner.run.manifest.protocol
    edit = edit_of(protocol, conversation)
    outcome = runner.outcome(example, edit)
    lost = 0.0 if outcome.reason else runner.lost(example, edit)
    overall = max(-1.0, outcome.accuracy - runner.settings.penalty * lost)
    gain = outcome.gain
    scores = {
        "accuracy": outcome.accuracy,
        "gain": gain,
        "improves": float(overall - outcome.before > LEAST),
        "overall": overall,
    }
    details = {
        "before": outcome.before,
        "by_seed": list(outcome.by_seed),
        "replies": [list(replies) for replies in outcome.replies],
        "texts": outcome.texts,
        "steps": outcome.steps,
        "seconds": round(outcome.seconds, 3),
        "learner": runner.learning.fingerprint,
        **({"lost": lost} if runner.settings.penalty else {}),
        **({"reason": outcome.reason} if outcome.reason else {}),
    }
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        scores=scores,
        reward=reward(judge.spec.reward, protocol, scores, 1),
        details=details,
        cost_usd=0.0,
        attempts=0,
        ended=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def edit_of(protocol: ProtocolSpec, conversation: Conversation) -> str:
    """Return the self-edit: the policy's last turn."""
    turns = policy_turns(protocol, conversation)
    if not turns:
        raise DataError(f"conversation {conversation.conversation_id}: the policy never spoke")
    return text_of(conversation.turns[turns[-1]].content)


Keep = Callable[[Conversation, Verdict], None]


async def adapt_all(
    run: Run,
    judge: Judge,
    pending: Collection[str],
    keep: Keep,
    *,
    status: Status | None = None,
    grade: Grade | None = None,
) -> Summary:
    """Score these conversations one after the other, in a thread of their own.

    What is finished is in the run's cache before its verdict is kept, so that a crash loses the
    adaptation in flight and no more. An adaptation that breaks gives a failed verdict.
    """
    settings = settings_of(judge)
    with cache_of(run) as kept, ThreadPoolExecutor(1, "adaptation") as thread:
        runner = open_runner(run, settings, kept)
        runner.grade = grade
        loop = asyncio.get_running_loop()

        def jobs() -> Iterator[Conversation]:
            return (c for c in run.conversations() if c.conversation_id in pending)

        async def work(conversation: Conversation) -> Verdict:
            example = run.examples[conversation.example_id]
            return await loop.run_in_executor(
                thread, verdict_of, runner, judge, conversation, example
            )

        return await run_jobs(
            jobs(),
            work,
            concurrency=1,
            on_done=keep,
            on_error=lambda c, error: keep(c, broken(judge, c, error)),
            status=status or Status(),
        )


async def adapted(run: Run, judge: Judge, calls: CallOptions) -> Judged:
    """Let an adaptation judge score what it has not scored; the caller holds the run's lock."""
    scored = {
        v.conversation_id
        for v in run.verdicts()
        if v.fingerprint == judge.fingerprint and v.failure is None
    }
    whole = [c.conversation_id for c in run.conversations() if c.failure is None]
    pending = {name for name in whole if name not in scored}
    judged = Judged(judge.name, kept=len(whole) - len(pending))
    if not pending:
        return judged
    run.keep_judge(judge.fingerprint, judge.spec)
    settings = settings_of(judge)

    with Appender(run.verdicts_file) as file:

        def keep(conversation: Conversation, verdict: Verdict) -> None:
            file.write(verdict.model_dump_json().encode())
            if verdict.failure is not None:
                judged.failed += 1
                judged.failures[verdict.failure.message] += 1

        async with calling(run, calls, f"judge {judge.name}", 1) as caller:
            caller.status.total = len(pending)
            async with by_model(settings.grader, settings.inner, caller, calls) as grade:
                judged.jobs = await adapt_all(
                    run, judge, pending, keep, status=caller.status, grade=grade
                )
    return judged


def broken(judge: Judge, conversation: Conversation, error: Exception) -> Verdict:
    """Return the record of an adaptation that broke (memory, missing questions)."""
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        failure=Failure(kind=type(error).__name__, message=str(error).split("\n")[0]),
        attempts=0,
        ended=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def mean(values: Sequence[float]) -> float:
    """Return the mean; TrainError where there is nothing."""
    if not values:
        raise TrainError("found no adaptation; expected some; build and judge the run first")
    return fmean(values)
