"""Units of judging (`per`): the jobs that are left for a judge, their requests, keys and records.

A unit knows nothing of kinds of judges, and a kind nothing of units: `verdict_on` connects them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Any, Protocol, TypeVar

from convbench.engine import Summary
from convbench.engine.caller import Caller
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.errors import UnsupportedTask
from convbench.judges.ask import ReplyForm, form_of, judge_messages
from convbench.judges.dispatch import iter_turn_parts, verdict_on
from convbench.judges.kinds import kind_of
from convbench.judges.model import unreadable_reason
from convbench.judges.resolve import Judge
from convbench.judges.verdicts import failed_verdict
from convbench.judges.work import Case, JudgeTools
from convbench.rollout.preview import Preview
from convbench.schema import (
    Conversation,
    Example,
    Failure,
    JudgeSpec,
    Message,
    RunManifest,
    Verdict,
)
from convbench.store import Run
from convbench.views import own_turns

J = TypeVar("J")
R = TypeVar("R")
Request = tuple[list[Message], Callable[[], dict[str, Any]]]
"""Messages of one call, and a function that returns the JSON schema of its reply."""
AHEAD = 16
"""Number of conversations that are read ahead."""


class PendingVerdicts(Container[object], Protocol):
    """Pending conversations by conversation_id: their newest verdict, a failed one, or None."""

    def __len__(self) -> int: ...

    def __getitem__(self, name: str, /) -> Verdict | None: ...


@dataclass
class JudgeSummary:
    """Counts of what one judge did in a run."""

    name: str
    jobs: Summary = Summary(0, 0)
    already_scored: int = 0
    """Conversations that had a verdict of this judge already."""
    failures: Counter[str] = field(default_factory=Counter)
    """Number of failures by message."""
    unsupported: int = 0
    """Failures because the task cannot be graded here, whatever the answer."""

    @property
    def failed_count(self) -> int:
        """Number of conversations that this judge could not score."""
        return self.jobs.failed

    def count_failure(self, failure: Failure | None) -> None:
        """Count the failure of a verdict or comparison by its message, and as unsupported if the
        task cannot be graded here; None counts nothing."""
        if failure is not None:
            self.failures[failure.message] += 1
            self.unsupported += failure.kind == UnsupportedTask.__name__


class Unit(RecordedJobs[J, R]):
    """Pending jobs of one judge, of one kind of unit."""

    judge: Judge
    summary: JudgeSummary
    tools: JudgeTools
    """Opened by the judge's kind; must be set before the first job."""

    @abstractmethod
    def iter_requests(self) -> Iterator[Request]:
        """Yield (messages, function that returns the reply's JSON schema) for each call to the
        judge's model."""

    async def score_all(self, caller: Caller) -> Summary:
        """Score all pending units, append their records to the file, and return how many were
        scored and how many failed."""
        return await run_recorded(self, caller, self.tools.concurrency)


class ConversationUnit(Unit[Conversation, Verdict]):
    """Pending conversations, each scored on its own."""

    def __init__(
        self, run: Run, judge: Judge, pending: PendingVerdicts, summary: JudgeSummary
    ) -> None:
        self.file = run.verdicts_file
        self.judge, self.summary = judge, summary
        self.several = run.manifest.samples > 1
        """Whether each question has several conversations to judge."""
        self._run, self._pending = run, pending
        self._prefix = f"judge/{judge.fingerprint}/"

    def jobs(self) -> Iterable[Conversation]:
        """Yield the pending conversations, in the order of the run.

        They are read in batches: reading one at a time between calls takes twice as long, since its
        code has left the processor's caches.
        """
        conversations = self._run.conversations()
        while some := tuple(islice(conversations, AHEAD)):
            yield from (
                conversation
                for conversation in some
                if conversation.conversation_id in self._pending
            )

    def __len__(self) -> int:
        return len(self._pending)

    async def result(self, job: Conversation) -> Verdict:
        """Return the verdict on a conversation, a failed one if it could not be scored.

        Errors that end the run are raised.
        """
        run, before = self._run, self._pending[job.conversation_id]
        case = Case(
            self.judge,
            job,
            run.examples[job.example_id],
            run.manifest.protocol,
            run.manifest.mode,
            run.examples,
            before.attempts if before else 0,
            several=self.several,
            previous=before,
        )
        return await verdict_on(case, self.tools)

    def failed_result(self, job: Conversation, error: Exception) -> Verdict:
        """Return a failed verdict with this error."""
        return failed_verdict(self.judge, job.conversation_id, error)

    def owns(self, key: str) -> bool:
        """Return whether a journal key belongs to one of these conversations."""
        name = key.removeprefix(self._prefix)
        return name != key and name.split("#")[0] in self._pending

    def count(self, job: Conversation, result: Verdict) -> None:
        """Count the failure of a verdict, if it has one."""
        self.summary.count_failure(result.failure)

    def unreadable(self, result: Verdict) -> str | None:
        """Return a sentence on why none of the judge's replies could be read; None for a verdict
        without a failure or with another one."""
        return unreadable_reason(self.judge, result.failure)

    def shown_conversations(self, conversation: Conversation) -> Iterator[Conversation]:
        """Yield the conversation as each call shows it to the judge."""
        if kind_of(self.judge.spec).measures != "answers":
            yield conversation
            return
        from convbench.judges.answers import last_turn

        yield last_turn(self._run.manifest.protocol, conversation)

    def iter_requests(self) -> Iterator[Request]:
        """Yield (messages, function that returns the reply's JSON schema) for each call to the
        judge's model, conversation by conversation."""
        for conversation in self.jobs():
            example = self._run.examples[conversation.example_id]
            before = self._pending[conversation.conversation_id]
            key = f"{self._prefix}{conversation.key}#{before.attempts if before else 0}"
            for talk in self.shown_conversations(conversation):
                messages = judge_messages(self.judge.spec, talk, example, key=key)
                yield messages, reply_form(self.judge.spec, example).schema

    @classmethod
    def requests_unbuilt(
        cls, judge: Judge, manifest: RunManifest, shown: Preview
    ) -> Iterable[Request]:
        """Return an iterator of the requests on a run that is not built yet: the same (messages,
        schema function) for every call on every conversation.

        The conversation is that of `shown`, the preview of the first one.
        """
        messages = judge_messages(judge.spec, shown.played, shown.example)
        calls = shown.estimate.conversations * cls.calls_each(manifest, shown.played)
        form = reply_form(judge.spec, shown.example)
        return repeat((messages, form.schema), calls)

    @classmethod
    def calls_each(cls, manifest: RunManifest, conversation: Conversation) -> int:
        """Return the number of calls for a conversation."""
        return 1


def reply_form(spec: JudgeSpec, example: Example) -> ReplyForm[Any]:
    """Return the form of the reply on one conversation."""
    if kind_of(spec).measures != "answers":
        return form_of(spec)
    from convbench.judges.answers import answers_form

    return answers_form(example)


class TurnUnit(ConversationUnit):
    """Pending conversations whose policy turns are scored one by one, each with its context."""

    def shown_conversations(self, conversation: Conversation) -> Iterator[Conversation]:
        """Yield, for each turn that the policy's model wrote, the conversation up to and including
        it; scripted turns are left out."""
        yield from (part for _, part in iter_turn_parts(self._run.manifest.protocol, conversation))

    @classmethod
    def calls_each(cls, manifest: RunManifest, conversation: Conversation) -> int:
        """Return the number of turns that the policy's model wrote."""
        return len(own_turns(manifest.protocol, conversation))
