"""Score the pending conversations of a run by one judge."""

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
"""Unit of judging by the judge's `per`; pairs are of two runs (`compare`)."""


async def score(run: Run, judge: Judge, calls: CallOptions) -> Judged:
    """Score a run's pending conversations and return the counts. The caller must hold the run's
    lock."""
    pending, kept = unscored(run, judge)
    judged = Judged(judge.name, kept=kept)
    if not pending:
        return judged
    run.keep_judge(judge.fingerprint, judge.spec)
    unit = UNITS[judge.spec.per](run, judge, pending, judged)
    async with kind_of(judge.spec).opened(Work(run, judge, calls)) as (caller, unit.tools):
        judged.jobs = await unit.run(caller)
    return judged
