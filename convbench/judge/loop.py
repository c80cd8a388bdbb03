"""One judge at work: what it has not scored of a run, asked, kept and counted."""

from __future__ import annotations

from collections.abc import Mapping

from convbench.judge.group import Groups
from convbench.judge.kinds import kind_of
from convbench.judge.pending import unscored
from convbench.judge.resolve import Judge
from convbench.judge.units import Conversations, Judged, Turns
from convbench.judge.work import Work
from convbench.options.shared import CallOptions
from convbench.schema.judge import Per
from convbench.store import Run

UNITS: Mapping[Per, type[Conversations | Groups]] = {
    "conversation": Conversations,
    "turn": Turns,
    "group": Groups,
}
"""What a judge of one run scores at a time; pairs are of two (`compare.Orders`)."""


async def score(run: Run, judge: Judge, calls: CallOptions) -> Judged:
    """Let one judge score what it has not scored, under the lock that the caller holds."""
    pending, kept = unscored(run, judge)
    judged = Judged(judge.name, kept=kept)
    if not pending:
        return judged
    run.keep_judge(judge.fingerprint, judge.spec)
    unit = UNITS[judge.spec.per](run, judge, pending, judged)
    async with kind_of(judge.spec).opened(Work(run, judge, calls)) as (caller, unit.tools):
        judged.jobs = await unit.run(caller)
    return judged
