"""Cells of numbers, and the columns of measures."""

from __future__ import annotations

from collections.abc import Sequence

from convbench.report.document import Cell, Column, Rank
from convbench.report.measures import (
    ACCURACY,
    REASONED,
    THINKING,
    UNREAD,
    Measure,
    judge_measures,
)
from convbench.report.sections import Section
from convbench.stats.estimate import Estimate

NONE = Cell("-")


def measures_of(section: Section, judge: str | None) -> list[Measure]:
    """Return the columns of a section's table: what somebody has a number for."""
    more = judge_measures(section.policies, judge) if judge is not None else []
    plain = [m for m in (ACCURACY, THINKING) if any(m.of(p) for p in section.policies)]
    if any(row.reasoned for p in section.policies for row in p.rows):
        plain.append(REASONED)
    if ACCURACY in plain:
        plain.insert(1, UNREAD)
    return [*plain, *more]


def headline(measures: Sequence[Measure]) -> Measure | None:
    """Return the judge's headline (`JudgeSpec.headline`), or the reward where it has none."""
    found = (measure for measure in measures if measure.headline)
    return next(found, next((one for one in measures if one.key == "reward"), None))


def column(measure: Measure) -> Column:
    return Column(measure.head, measure.short)


def number(found: Estimate | None, digits: int, rank: Rank = 0) -> Cell:
    """Return the cell of an estimate: mean and standard error, rounded alike."""
    if found is None:
        return NONE
    error = None if found.error is None else f"{found.error:.{digits}f}"
    return Cell(f"{found.mean:.{digits}f}", error, rank)


def percent(found: Estimate | None, span: tuple[float, float] | None) -> Cell:
    """Return the cell of a share with its 95% interval, in percent."""
    if found is None:
        return NONE
    ends = "" if span is None else f" [{100 * span[0]:.1f}, {100 * span[1]:.1f}]"
    return Cell(f"{100 * found.mean:.1f}{ends}")


def p_text(p: float | None) -> str:
    """Return a p value as text."""
    if p is None:
        return "-"
    return "<.001" if p < 0.001 else f"{p:.3f}"
