"""Cells of numbers, and the measures and columns of a section's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convbench.report.document import Cell, Column, Figure, Rank
from convbench.report.measures import (
    ACCURACY,
    REASONED,
    THINKING,
    UNREAD,
    Measure,
    judge_measures,
)
from convbench.report.sections import Section
from convbench.stats.means import Estimate

NONE = Cell("-")


def measures_of(section: Section, judge: str | None) -> list[Measure]:
    """Return the measures of a section's table: those that at least one policy has a number for."""
    more = judge_measures(section.policies, judge) if judge is not None else []
    tags = (THINKING,) if section.mode == "thinking" else ()  # other modes do not ask for tags
    basic = [m for m in (ACCURACY, *tags) if any(m.mean_of(p) for p in section.policies)]
    if any(row.reasoned for p in section.policies for row in p.observations):
        basic.append(REASONED)
    if ACCURACY in basic:
        basic.insert(1, UNREAD)
    return [*basic, *more]


def headline_measure(measures: Sequence[Measure]) -> Measure | None:
    """Return the judge's headline measure, else its reward; None without a judge."""
    headlines = (measure for measure in measures if measure.headline)
    return next(
        headlines, next((candidate for candidate in measures if candidate.key == "reward"), None)
    )


def measure_column(measure: Measure) -> Column:
    """Return the column of a measure."""
    return Column(measure.head, measure.short)


def estimate_figure(estimate: Estimate, scale: float = 1.0, p: float | None = None) -> Figure:
    """Return the figure of an estimate, times `scale`."""
    span = estimate.interval
    return Figure(
        estimate.mean * scale,
        None if estimate.error is None else estimate.error * scale,
        None if span is None else (span[0] * scale, span[1] * scale),
        p,
        estimate.n,
    )


def scale_notes(measures: Iterable[Measure]) -> tuple[str, ...]:
    """Return a tuple of one note on the measures' scales; empty if none has limits."""
    heads_by_scale: dict[str, list[str]] = {}
    for measure in measures:
        if measure.limits is not None:
            low, high = measure.limits
            heads_by_scale.setdefault(f"{low:g} to {high:g}", []).append(measure.head)
    spans = "; ".join(f"{', '.join(names)}: {span}" for span, names in heads_by_scale.items())
    return (f"Scales: {spans}.",) if spans else ()


def estimate_cell(estimate: Estimate | None, digits: int, rank: Rank = 0) -> Cell:
    """Return the cell of an estimate: mean and standard error, with equal digits."""
    if estimate is None:
        return NONE
    error = None if estimate.error is None else f"{estimate.error:.{digits}f}"
    return Cell(f"{estimate.mean:.{digits}f}", error, rank, figure=estimate_figure(estimate))


def interval_cells(
    estimate: Estimate | None, digits: int = 2, *, sign: str = "+", p: float | None = None
) -> tuple[Cell, Cell]:
    """Return the cells of an estimate and of its 95% interval. `sign` is "+" for differences, else
    ""; `p` is added to the figure."""
    if estimate is None:
        return NONE, NONE
    form = f"{sign}.{digits}f"
    return (
        Cell(f"{estimate.mean:{form}}", figure=estimate_figure(estimate, p=p)),
        span_cell(estimate.interval, digits, sign),
    )


def decimal_cell(
    value: float | None, digits: int, *, sign: str = "", span: tuple[float, float] | None = None
) -> Cell:
    """Return the cell of a number without an error; `span` is its 95% interval, for the figure."""
    if value is None:
        return NONE
    return Cell(f"{value:{sign}.{digits}f}", figure=Figure(value, interval=span))


def span_cell(span: tuple[float, float] | None, digits: int, sign: str = "") -> Cell:
    """Return the cell of an interval."""
    form = f"{sign}.{digits}f"
    return NONE if span is None else Cell(f"[{span[0]:{form}}, {span[1]:{form}}]")


def percent_cell(estimate: Estimate | None, span: tuple[float, float] | None) -> Cell:
    """Return the cell of a share with its 95% interval, in percent."""
    if estimate is None:
        return NONE
    ends = "" if span is None else f" [{100 * span[0]:.1f}, {100 * span[1]:.1f}]"
    shown = replace(
        estimate_figure(estimate, 100.0), interval=span and (100 * span[0], 100 * span[1])
    )
    return Cell(f"{100 * estimate.mean:.1f}{ends}", figure=shown)


def p_text(p: float | None) -> str:
    """Return a p value as text."""
    if p is None:
        return "-"
    return "<.001" if p < 0.001 else f"{p:.3f}"
