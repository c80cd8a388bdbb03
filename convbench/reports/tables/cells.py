"""Cells of numbers, and the measures and columns of a section's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from convbench.reports.document import Cell, Column, Figure, Rank, Table, slug
from convbench.reports.measures import (
    ACCURACY,
    REASONED,
    THINKING,
    UNREAD,
    Measure,
    PairedDifference,
    judge_measures,
)
from convbench.reports.sections import Section
from convbench.stats.means import ErrorKind, Estimate

NONE = Cell("-")


def measures_of(section: Section, judge: str | None) -> list[Measure]:
    """Return the measures of a section's results table, in order: accuracy, unread answers,
    thinking tags, reasoning, then the judge's.

    Accuracy is listed if a policy has it, and unread answers with it; thinking tags only in mode
    `thinking`, reasoning only if a conversation has some.
    """
    more = judge_measures(section.policies, judge) if judge is not None else []
    tags = (THINKING,) if section.mode == "thinking" else ()  # other modes do not ask for tags
    basic = [m for m in (ACCURACY, *tags) if any(m.mean_of(p) for p in section.policies)]
    if any(row.reasoned for p in section.policies for row in p.observations):
        basic.append(REASONED)
    if ACCURACY in basic:
        basic.insert(1, UNREAD)
    return [*basic, *more]


def headline_measure(measures: Sequence[Measure]) -> Measure | None:
    """Return the measure that is the judge's headline, else the one with key `reward`; None if
    there is neither."""
    headlines = (measure for measure in measures if measure.headline)
    return next(
        headlines, next((candidate for candidate in measures if candidate.key == "reward"), None)
    )


def measure_column(measure: Measure) -> Column:
    """Return a numeric column with the measure's long and short head."""
    return Column(measure.head, measure.short)


def estimate_figure(estimate: Estimate, scale: float = 1.0, p: float | None = None) -> Figure:
    """Return mean, standard error and 95% interval of an estimate, each times `scale`, with `p` and
    its number of observations.

    Error and interval are None if the estimate has none.
    """
    span = estimate.interval
    return Figure(
        estimate.mean * scale,
        None if estimate.error is None else estimate.error * scale,
        None if span is None else (span[0] * scale, span[1] * scale),
        p,
        estimate.n,
    )


def scale_notes(measures: Iterable[Measure]) -> tuple[str, ...]:
    """Return a tuple of one note that lists the heads of the measures by their limits; an empty
    tuple if none has limits."""
    heads_by_scale: dict[str, list[str]] = {}
    for measure in measures:
        if measure.limits is not None:
            low, high = measure.limits
            heads_by_scale.setdefault(f"{low:g} to {high:g}", []).append(measure.head)
    spans = "; ".join(f"{', '.join(names)}: {span}" for span, names in heads_by_scale.items())
    return (f"Scales: {spans}.",) if spans else ()


def estimate_cell(estimate: Estimate | None, digits: int, rank: Rank = 0) -> Cell:
    """Return the cell of an estimate: mean as text, standard error as error text, both with
    `digits` decimals; `-` for None."""
    if estimate is None:
        return NONE
    error = None if estimate.error is None else f"{estimate.error:.{digits}f}"
    return Cell(f"{estimate.mean:.{digits}f}", error, rank, figure=estimate_figure(estimate))


def interval_cells(
    estimate: Estimate | None, digits: int = 2, *, sign: str = "+", p: float | None = None
) -> tuple[Cell, Cell]:
    """Return the cells of an estimate's mean and of its 95% interval; `-` for what is missing.

    `sign` is "+" for differences, else ""; `p` is added to the first cell's figure.
    """
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
    """Return the cell of a number without an error, with `digits` decimals; `-` for None.

    `span` is its 95% interval, for the figure only.
    """
    if value is None:
        return NONE
    return Cell(f"{value:{sign}.{digits}f}", figure=Figure(value, interval=span))


def span_cell(span: tuple[float, float] | None, digits: int, sign: str = "") -> Cell:
    """Return the cell of an interval, `[LOW, HIGH]` with `digits` decimals; `-` for None.

    `sign` "+" shows the sign of positive ends.
    """
    form = f"{sign}.{digits}f"
    return NONE if span is None else Cell(f"[{span[0]:{form}}, {span[1]:{form}}]")


def percent_cell(estimate: Estimate | None, span: tuple[float, float] | None) -> Cell:
    """Return the cell of a share with its 95% interval in percent, `12.3 [4.5, 20.1]`; `-` without
    an estimate.

    Estimate and `span` are from 0 to 1. Without `span` the text is the number alone.
    """
    if estimate is None:
        return NONE
    ends = "" if span is None else f" [{100 * span[0]:.1f}, {100 * span[1]:.1f}]"
    shown = replace(
        estimate_figure(estimate, 100.0), interval=span and (100 * span[0], 100 * span[1])
    )
    return Cell(f"{100 * estimate.mean:.1f}{ends}", figure=shown)


def seconds_text(seconds: float) -> str:
    """Return seconds as text: whole ones from 100 on, else three digits."""
    return f"{seconds:,.0f}" if seconds >= 100 else f"{seconds:.3g}"


def p_text(p: float | None) -> str:
    """Return a p value with three decimals, `<.001` for a smaller one, `-` for None."""
    if p is None:
        return "-"
    return "<.001" if p < 0.001 else f"{p:.3f}"


def paired_table(
    compared: Sequence[tuple[Measure, Sequence[PairedDifference]]], base: str, kind: ErrorKind
) -> Table:
    """Return the table of paired differences to `base`: a row for each policy, and four columns for
    each measure. The list is not empty, and every measure has all policies."""
    columns = [Column("Method", "Method", numeric=False)]
    rows: dict[str, list[Cell]] = {d.name: [Cell(d.name)] for d in compared[0][1]}
    for measure, differences in compared:
        columns += [
            Column(f"{measure.head} − {base}", f"{measure.short} −{base}"),
            Column("95% interval", "95%"),
            Column("p (Holm)", "p Holm"),
            Column("pairs", "pairs"),
        ]
        for difference in differences:
            rows[difference.name] += _difference_cells(difference, measure.digits)
    unit = "groups" if kind == "clustered" else "conversations"
    notes = (
        "Paired over conversations about the same question with the same sample and temperature; "
        f"Student's t over {unit}; p adjusted by Holm over the methods.",
        *scale_notes(measure for measure, _ in compared),
    )
    title = f"Differences to {base}, paired"
    return Table(title, tuple(columns), tuple(map(tuple, rows.values())), notes, slug(title))


def _difference_cells(difference: PairedDifference, digits: int) -> list[Cell]:
    cells = interval_cells(difference.estimate, digits, p=difference.adjusted)
    return [*cells, Cell(p_text(difference.adjusted)), Cell(str(difference.n))]
