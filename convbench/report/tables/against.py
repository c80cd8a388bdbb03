"""Policies against Base: paired differences, and McNemar's test at each temperature."""

from __future__ import annotations

from convbench.report.document import Cell, Column, Table, slug
from convbench.report.measures import ACCURACY, by_heat, heat
from convbench.report.paired import Paired, by_temperature, paired
from convbench.report.policies import judge_spec
from convbench.report.rows import at
from convbench.report.sections import Section
from convbench.report.tables.cells import (
    NONE,
    column,
    headline,
    measures_of,
    number,
    p_text,
    scales,
    with_interval,
)
from convbench.report.tables.results import ERRORS
from convbench.stats.means import ErrorKind


def difference_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return paired differences to Base with 95% intervals; None without Base or another."""
    spec = judge_spec(section.policies, judge)
    within = spec is not None and spec.relative  # its scores say nothing between policies
    top = None if within else headline(measures_of(section, judge))
    shown = [m for m in (ACCURACY, top) if m is not None]
    found = [
        (m, differences)
        for m in shown
        if (differences := paired(section, m, kind)) and any(d.n for d in differences)
    ]
    if not found or section.baseline is None:
        return None
    base = section.baseline.name
    columns = [Column("Method", "Method", numeric=False)]
    rows: dict[str, list[Cell]] = {d.name: [Cell(d.name)] for d in found[0][1]}
    for measure, differences in found:
        columns += [
            Column(f"{measure.head} − {base}", f"{measure.short} −{base}"),
            Column("95% interval", "95%"),
            Column("p (Holm)", "p Holm"),
            Column("pairs", "pairs"),
        ]
        for difference in differences:
            rows[difference.name] += _difference(difference, measure.digits)
    unit = "groups" if kind == "clustered" else "conversations"
    notes = (
        "Paired over conversations about the same question with the same sample and temperature; "
        f"Student's t over {unit}; p adjusted by Holm over the methods.",
        *scales(measure for measure, _ in found),
    )
    title = f"Differences to {base}, paired"
    return Table(title, tuple(columns), tuple(map(tuple, rows.values())), notes, slug(title))


def _difference(found: Paired, digits: int) -> list[Cell]:
    cells = with_interval(found.estimate, digits, p=found.adjusted)
    return [*cells, Cell(p_text(found.adjusted)), Cell(str(found.n))]


def temperature_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the figures at each temperature with McNemar's test; None for one temperature
    without anything to compare."""
    temperatures = sorted({r.temperature for p in section.policies for r in p.rows}, key=by_heat)
    measures = measures_of(section, judge)
    top = headline(measures)
    shown = [m for m in measures if m in (ACCURACY, top)]
    tests = by_temperature(section)
    if len(temperatures) < 2 and not tests:
        return None
    columns = [
        Column("Method", "Method", numeric=False), Column("T", "T"), Column("n", "n"),
        *map(column, shown),
    ]  # fmt: skip
    if tests:
        base = section.baseline.name if section.baseline else ""
        columns += [
            Column(f"only {base} right", f"only {base}"), Column("only it right", "only it"),
            Column("McNemar p", "McN. p"), Column("p (Holm)", "p Holm"),
        ]  # fmt: skip
    rows = []
    for policy in section.policies:
        for temperature in temperatures:
            failed = [row.failed for row in at(policy.rows, temperature)]
            if not failed:
                continue
            had = failed.count(False)
            cells = [Cell(policy.name), Cell(heat(temperature)), Cell(str(had))]
            cells += [number(m.over(at(policy.rows, temperature), kind), m.digits) for m in shown]
            if tests:
                test = tests.get((policy.name, temperature))
                cells += (
                    [Cell(str(test.counts.only_first)), Cell(str(test.counts.only_second)),
                     Cell(p_text(test.counts.p)), Cell(p_text(test.adjusted))]
                    if test else [NONE] * 4
                )  # fmt: skip
            rows.append(tuple(cells))
    notes = [
        "Temperatures are not repeats of one another, so each has its own line.",
        f"Mean ± {ERRORS[kind]}.",
        *scales(shown),
    ]
    if tests:
        notes.append(
            "McNemar's exact test on pairs about the same question; Holm over the methods at "
            "that temperature."
        )
        if any(test.clustered for test in tests.values()):
            notes.append(
                "Some groups have several pairs at one temperature, which the test takes as "
                "independent: read its p with the paired interval above."
            )
    return Table("By temperature", tuple(columns), tuple(rows), tuple(notes), "by-temperature")
