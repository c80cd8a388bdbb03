"""The table on two simulated humans: their share of the differences between policies."""

from __future__ import annotations

from convbench.reports.document import Cell, Column, ReportPart, Table
from convbench.reports.simulators import SimulatorDifference, SimulatorPair
from convbench.reports.tables.cells import decimal_cell, interval_cells, span_cell


def simulators_part(pair: SimulatorPair) -> ReportPart:
    """Return the part on two sections that differ only in their simulated human: one table of each
    policy's differences to the baseline with both."""
    first, second = pair.first.simulator, pair.second.simulator
    base = pair.first.baseline.name if pair.first.baseline else "Base"
    columns = (
        Column("Method", "Method", numeric=False),
        Column("Measure", "Measure", numeric=False),
        Column(f"− {base} with {first}", "1st"),
        Column("95% interval", "95%"),
        Column(f"− {base} with {second}", "2nd"),
        Column("95% interval", "95%"),
        Column("first − second", "apart"),
        Column("95% interval", "95%"),
        Column("simulator's share (%)", "share %"),
        Column("95% interval", "95%"),
        Column("result", "result", numeric=False),
    )
    rows = tuple(_difference_row(row) for row in pair.rows)
    notes = [
        f"1st: simulator {first}; 2nd: {second}. Paired over the same question, sample and "
        "temperature in all four runs; Student's t over groups.",
        "share: half the distance of the two differences over their mean, (1st - 2nd) / (1st + "
        "2nd): how far the mean difference depends on the simulator. Beyond 100 % the two "
        "means have opposite signs. No interval: the mean difference does not differ significantly "
        "from 0 (Fieller's interval has no end). The result is better or worse only if both "
        "intervals lie on one side of 0, flips only if they lie on opposite sides.",
    ]
    flips = [row for row in pair.rows if row.outcome == "flips"]
    if flips:
        listed = ", ".join(dict.fromkeys(f"{row.policy} ({row.measure.head})" for row in flips))
        notes.append(f"The ranking flips between the simulators, so there is no win: {listed}.")
    title = f"{pair.first.task} · {pair.first.mode} · {pair.first.protocol}, two simulators"
    table = Table("The simulator's share", columns, rows, tuple(notes), "two-simulators")
    return ReportPart(title, tables=(table,))


def _difference_row(row: SimulatorDifference) -> tuple[Cell, ...]:
    digits, span, value = row.measure.digits, row.share.interval, row.share.value
    percents = None if span is None else (100 * span[0], 100 * span[1])
    return (
        Cell(row.policy),
        Cell(row.measure.head),
        *interval_cells(row.first, digits),
        *interval_cells(row.second, digits),
        *interval_cells(row.contrast, digits),
        decimal_cell(value and 100 * value, 0, sign="+", span=percents),
        span_cell(percents, 0, "+"),
        Cell(row.outcome),
    )
