"""One judge at work: what it has not scored of a run, asked, kept and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from convbench.engine import Summary
from convbench.engine.caller import Caller
from convbench.engine.recorded import Recording, run_recorded
from convbench.errors import UnsupportedTask
from convbench.judge.case import Case
from convbench.judge.dispatch import verdict_on
from convbench.judge.group import score_groups
from convbench.judge.kinds import kind_of
from convbench.judge.model import unreadable
from convbench.judge.pending import Pending, unscored
from convbench.judge.resolve import Judge
from convbench.judge.verdicts import failed_verdict
from convbench.judge.work import Tools, Work
from convbench.options.shared import CallOptions
from convbench.schema import Conversation, Verdict
from convbench.store import Run

AHEAD = 16
"""Conversations that are read at once."""


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

    def count(self, verdict: Verdict) -> None:
        """Count a verdict that gives no score."""
        if verdict.failure is not None:
            self.failures[verdict.failure.message] += 1
            self.unsupported += verdict.failure.kind == UnsupportedTask.__name__


async def score(run: Run, judge: Judge, calls: CallOptions) -> Judged:
    """Let one judge score what it has not scored, under the lock that the caller holds."""
    pending, kept = unscored(run, judge)
    judged = Judged(judge.name, kept=kept)
    if not pending:
        return judged
    run.keep_judge(judge.fingerprint, judge.spec)
    async with kind_of(judge.spec).opened(Work(run, judge, calls)) as (caller, tools):
        if judge.spec.per == "group":
            judged.jobs = await score_groups(run, judge, pending, caller, tools, judged.count)
        else:
            judged.jobs = await _all(run, judged, pending, caller, judge, tools)
    return judged


async def _all(
    run: Run,
    judged: Judged,
    pending: Pending,
    caller: Caller,
    judge: Judge,
    tools: Tools,
) -> Summary:
    manifest, prefix = run.manifest, f"judge/{judge.fingerprint}/"

    async def work(conversation: Conversation) -> Verdict:
        example = run.examples[conversation.example_id]
        before = pending[conversation.conversation_id]
        case = Case(
            judge, conversation, example, manifest.protocol, manifest.mode, run.examples,
            before.attempts if before else 0, several=manifest.samples > 1, before=before,
        )  # fmt: skip
        return await verdict_on(case, tools)

    recording = Recording[Conversation, Verdict](
        run.verdicts_file,
        lambda conversation, verdict: verdict.model_dump_json().encode(),
        lambda conversation, error: failed_verdict(judge, conversation.conversation_id, error),
        lambda key: key.startswith(prefix) and key[len(prefix) :].split("#")[0] in pending,
        lambda conversation: f"{prefix}{conversation.conversation_id}#",
        lambda verdict: verdict.failure is not None,
        lambda conversation, verdict: judged.count(verdict),
        lambda verdict: unreadable(judge, verdict.failure),
    )
    conversations = (c for c in _ahead(run.conversations()) if c.conversation_id in pending)
    return await run_recorded(
        conversations, len(pending), work, recording, caller, tools.concurrency
    )


def _ahead(conversations: Iterator[Conversation]) -> Iterator[Conversation]:
    """Yield them, read a few at a time: between two calls one alone takes twice as long, since what
    reads it has left the processor's caches."""
    while some := tuple(islice(conversations, AHEAD)):
        yield from some
