"""One judge at work: what it has not scored of a run, asked, kept and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from convbench.engine import Summary, run_jobs
from convbench.engine.caller import Caller
from convbench.errors import UnsupportedTask
from convbench.judge.case import Case
from convbench.judge.kinds import kind_of
from convbench.judge.resolve import Judge
from convbench.judge.run import verdict_on
from convbench.judge.verdicts import failed_verdict
from convbench.judge.work import Tools, Work
from convbench.options.shared import CallOptions
from convbench.rollout.calls import permit
from convbench.schema import Conversation, Verdict
from convbench.store import Run
from convbench.store.jsonl import Appender


@dataclass
class Judged:
    """What one judge did."""

    name: str
    jobs: Summary = Summary(0, 0)
    kept: int = 0
    """Conversations that had this judge's verdict already."""
    failed: int = 0
    """Conversations that this judge gave no score."""
    failures: Counter[str] = field(default_factory=Counter)
    """Their messages."""
    unsupported: int = 0
    """Those of them whose task cannot be graded here, whatever the answer."""

    def count(self, verdict: Verdict) -> None:
        """Count a verdict that gives no score."""
        if verdict.failure is not None:
            self.failed += 1
            self.failures[verdict.failure.message] += 1
            self.unsupported += verdict.failure.kind == UnsupportedTask.__name__


def unscored(run: Run, judge: Judge) -> tuple[dict[str, int], int]:
    """Return (id → replies asked for before, of those without a verdict; how many have one)."""
    scored: set[str] = set()
    asked: dict[str, int] = {}
    for verdict in run.verdicts():
        if verdict.fingerprint == judge.fingerprint:
            if verdict.failure is None:
                scored.add(verdict.conversation_id)
            else:
                asked[verdict.conversation_id] = verdict.attempts
    everything = {c.conversation_id: c.failure is None for c in run.conversations()}
    wanted = judge.scorable(everything)
    built = [name for name, whole in everything.items() if whole and name in wanted]
    pending = {name: asked.get(name, 0) for name in built if name not in scored}
    return pending, len(built) - len(pending)


async def score(run: Run, judge: Judge, calls: CallOptions) -> Judged:
    """Let one judge score what it has not scored, under the lock that the caller holds."""
    pending, kept = unscored(run, judge)
    judged = Judged(judge.name, kept=kept)
    if not pending:
        return judged
    run.keep_judge(judge.fingerprint, judge.spec)
    async with kind_of(judge.spec).opened(Work(run, judge, calls)) as (caller, tools):
        with Appender(run.verdicts_file) as file:
            keep = _keeper(judge, judged, file, caller)
            judged.jobs = await _all(run, judge, caller, tools, pending, keep)
    return judged


Keep = Callable[[Conversation, Verdict], None]


def _keeper(judge: Judge, judged: Judged, file: Appender, caller: Caller) -> Keep:
    """Return what appends one verdict and counts it."""

    def keep(conversation: Conversation, verdict: Verdict) -> None:
        file.write(verdict.model_dump_json().encode())
        if caller.journal is not None:
            caller.journal.forget(f"judge/{judge.fingerprint}/{conversation.conversation_id}#")
        judged.count(verdict)

    return keep


async def _all(
    run: Run, judge: Judge, caller: Caller, tools: Tools, pending: dict[str, int], keep: Keep
) -> Summary:
    prefix = f"judge/{judge.fingerprint}/"
    if caller.journal is not None:
        caller.journal.load(
            lambda key: key.startswith(prefix) and key[len(prefix) :].split("#")[0] in pending
        )
    caller.status.total = len(pending)

    def conversations() -> Iterator[Conversation]:
        return (c for c in run.conversations() if c.conversation_id in pending)

    async def work(conversation: Conversation) -> Verdict:
        name, example = conversation.conversation_id, run.examples[conversation.example_id]
        manifest = run.manifest
        return await verdict_on(
            Case(
                judge, conversation, example, manifest.protocol, manifest.mode, run.examples,
                pending[name],
            ),
            tools,
        )  # fmt: skip

    return await run_jobs(
        conversations(),
        work,
        concurrency=tools.concurrency,
        on_done=keep,
        on_error=lambda c, error: keep(c, failed_verdict(judge, c.conversation_id, error)),
        status=caller.status,
    )


def permit_judge(run: Run, judge: Judge, calls: CallOptions) -> None:
    """Raise RunError where a pulled run has a judge's model called and the user did not agree."""
    if judge.model is not None:
        permit(run, judge.model, judge.spec.api_base, calls)
