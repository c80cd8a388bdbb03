"""Score the pending conversations of a run by one judge."""

from __future__ import annotations

from collections.abc import Mapping

from convbench.judge.group import GroupUnit
from convbench.judge.kinds import kind_of
from convbench.judge.pending import find_pending
from convbench.judge.resolve import Judge
from convbench.judge.units import ConversationUnit, JudgeSummary, TurnUnit
from convbench.judge.work import JudgeWork
from convbench.options.shared import CallOptions
from convbench.schema.judge import Per
from convbench.store import Run

UNITS: Mapping[Per, type[ConversationUnit | GroupUnit]] = {
    "conversation": ConversationUnit,
    "turn": TurnUnit,
    "group": GroupUnit,
}
"""Unit of judging by the judge's `per`; pairs are of two runs (`compare`)."""


async def score_pending(run: Run, judge: Judge, calls: CallOptions) -> JudgeSummary:
    """Score a run's pending conversations and return the counts. The caller must hold the run's
    lock."""
    pending, already_scored = find_pending(run, judge)
    summary = JudgeSummary(judge.name, already_scored=already_scored)
    if not pending:
        return summary
    run.store_judge(judge.fingerprint, judge.spec)
    unit = UNITS[judge.spec.per](run, judge, pending, summary)
    async with kind_of(judge.spec).open_kind(JudgeWork(run, judge, calls)) as (caller, unit.tools):
        summary.jobs = await unit.score_all(caller)
    return summary
