"""What a judge scores at a time (`per`): what is left of it, how it is asked, keyed and recorded.

A unit knows no kinds of judges, and a kind no units: `verdict_on` has a kind score one.
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
from convbench.judge.ask import Form, form_of, judge_messages
from convbench.judge.case import Case
from convbench.judge.dispatch import verdict_on
from convbench.judge.kinds import kind_of
from convbench.judge.model import unreadable
from convbench.judge.resolve import Judge
from convbench.judge.turns import parts
from convbench.judge.verdicts import failed_verdict
from convbench.judge.work import Tools
from convbench.rollout.preview import Preview
from convbench.schema import Conversation, Example, Failure, Message, RunManifest, Verdict
from convbench.store import Run
from convbench.views import policy_turns

J = TypeVar("J")
R = TypeVar("R")
Request = tuple[list[Message], Callable[[], dict[str, Any]]]
"""What one call is sent: messages, and the JSON schema of its reply where the model takes one."""
AHEAD = 16
"""Conversations that are read at once."""


class Before(Container[object], Protocol):
    """What is to be scored, by conversation_id, with the newest verdict where it failed."""

    def __len__(self) -> int: ...

    def __getitem__(self, name: str, /) -> Verdict | None: ...


@dataclass
class Judged:
    """What one judge did."""

    name: str
    jobs: Summary = Summary(0, 0)
    kept: int = 0
    """Conversations that had this judge's verdict already."""
    failures: Counter[str] = field(default_factory=Counter)
    """Their messages."""
    unsupported: int = 0
    """Those of them whose task cannot be graded here, whatever the answer."""

    @property
    def failed(self) -> int:
        """Conversations that this judge gave no score."""
        return self.jobs.failed

    def count(self, failure: Failure | None) -> None:
        """Count a verdict, or a comparison, that gives no score."""
        if failure is not None:
            self.failures[failure.message] += 1
            self.unsupported += failure.kind == UnsupportedTask.__name__


class Unit(RecordedJobs[J, R]):
    """What one judge has still to score, a job for each time that it is asked."""

    judge: Judge
    judged: Judged
    tools: Tools
    """What the judge's kind opened; there before the first job."""

    @abstractmethod
    def requests(self) -> Iterator[Request]:
        """Yield what a judge's model would be sent, call by call."""

    async def run(self, caller: Caller) -> Summary:
        """Score all; return how many got a score, and how many did not."""
        return await run_recorded(self, caller, self.tools.concurrency)


class Conversations(Unit[Conversation, Verdict]):
    """Conversations, each scored by itself."""

    def __init__(self, run: Run, judge: Judge, pending: Before, judged: Judged) -> None:
        self.file = run.verdicts_file
        self.judge, self.judged = judge, judged
        self.several = run.manifest.samples > 1
        """Whether questions have other conversations, which are judged too."""
        self._run, self._pending = run, pending
        self._prefix = f"judge/{judge.fingerprint}/"

    def jobs(self) -> Iterable[Conversation]:
        """Return the conversations without a score, read a few at a time: between two calls one
        alone takes twice as long, since what reads it has left the processor's caches."""
        conversations = self._run.conversations()
        while some := tuple(islice(conversations, AHEAD)):
            yield from (one for one in some if one.conversation_id in self._pending)

    def __len__(self) -> int:
        return len(self._pending)

    async def result(self, job: Conversation) -> Verdict:
        """Return the verdict on a conversation."""
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
            before=before,
        )
        return await verdict_on(case, self.tools)

    def failed_result(self, job: Conversation, error: Exception) -> Verdict:
        """Return a verdict without scores that says why."""
        return failed_verdict(self.judge, job.conversation_id, error)

    def owns(self, key: str) -> bool:
        """Whether a call is about one of these conversations."""
        name = key.removeprefix(self._prefix)
        return name != key and name.split("#")[0] in self._pending

    def key_prefix(self, job: Conversation) -> str:
        """Return what the keys of a conversation's calls begin with."""
        return f"{self._prefix}{job.conversation_id}#"

    def count(self, job: Conversation, result: Verdict) -> None:
        """Count a verdict without scores."""
        self.judged.count(result.failure)

    def unreadable(self, result: Verdict) -> str | None:
        """Return why nothing could be read of the judge's replies."""
        return unreadable(self.judge, result.failure)

    def shown(self, conversation: Conversation) -> Iterator[Conversation]:
        """Yield what is shown of a conversation, call by call."""
        yield conversation

    def requests(self) -> Iterator[Request]:
        """Yield what a judge's model would be sent, call by call."""
        for conversation in self.jobs():
            example = self._run.examples[conversation.example_id]
            before = self._pending[conversation.conversation_id]
            key = f"{self._prefix}{conversation.key}#{before.attempts if before else 0}"
            for talk in self.shown(conversation):
                messages = judge_messages(self.judge.spec, talk, example, key=key)
                yield messages, self._form(talk, example).schema

    def _form(self, talk: Conversation, example: Example) -> Form[Any]:
        """Return what the reply on one conversation is to be."""
        if kind_of(self.judge.spec).measures != "simulator":
            return form_of(self.judge.spec)
        from convbench.judge.review.scene import scenes
        from convbench.judge.review.verdict import form

        return form(len(list(scenes(talk, example, self._run.manifest.protocol))))

    @classmethod
    def requests_unbuilt(
        cls, judge: Judge, manifest: RunManifest, shown: Preview
    ) -> Iterable[Request]:
        """Return what would be sent of a run that is not built, of which `shown` is the first
        conversation."""
        messages = judge_messages(judge.spec, shown.played, shown.example)
        calls = shown.estimate.conversations * cls.calls_each(manifest, shown.played)
        return repeat((messages, form_of(judge.spec).schema), calls)

    @classmethod
    def calls_each(cls, manifest: RunManifest, conversation: Conversation) -> int:
        """Return how many calls a conversation takes."""
        return 1


class Turns(Conversations):
    """Conversations of which every policy turn is scored, with what leads up to it."""

    def shown(self, conversation: Conversation) -> Iterator[Conversation]:
        """Yield what leads to each turn, with it."""
        yield from (part for _, part in parts(self._run.manifest.protocol, conversation))

    @classmethod
    def calls_each(cls, manifest: RunManifest, conversation: Conversation) -> int:
        """Return the number of policy turns."""
        return len(policy_turns(manifest.protocol, conversation))
