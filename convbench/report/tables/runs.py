"""What pooled runs say one by one, and how much they differ."""

from __future__ import annotations

from dataclasses import replace

from convbench.report.document import Cell, Column, Table
from convbench.report.measures import ACCURACY
from convbench.report.sections import Section
from convbench.report.tables.cells import headline, measures_of, number, scales
from convbench.stats.means import Estimate, estimate


def run_table(section: Section, judge: str | None) -> Table | None:
    """Return each pooled run's means, and the mean and error over the runs; None where no
    policy is pooled from several. Training and questions drawn anew are in this error."""
    if not any(len(policy.members) > 1 for policy in section.policies):
        return None
    measures = [m for m in (ACCURACY, headline(measures_of(section, judge))) if m is not None]
    families = dict.fromkeys(m.family for policy in section.policies for m in policy.members)
    names = {family: f"run {place}" for place, family in enumerate(families, 1)}
    columns = [Column("Method", "Method", numeric=False)]
    rows: list[list[Cell]] = [[Cell(policy.name)] for policy in section.policies]
    for measure in measures:
        columns += [Column(f"{measure.head}, {name}", name) for name in names.values()]
        columns.append(Column(f"{measure.head}, over runs", measure.short))
        for policy, row in zip(section.policies, rows, strict=True):
            found = {m.family: measure.of(m) for m in policy.members}
            row += [number(_bare(found.get(family)), measure.digits) for family in names]
            means = ((family, e.mean) for family, e in found.items() if e is not None)
            row.append(number(estimate(means), measure.digits))
    seeds = {m.family: m.run.manifest.seed for p in section.policies for m in p.members}
    listed = ", ".join(f"{name}: seed {seeds[family]}" for family, name in names.items())
    notes = (
        f"{listed}. Over runs: mean ± standard error with every run as one observation.",
        *scales(measures),
    )
    return Table("By run", tuple(columns), tuple(map(tuple, rows)), notes, "by-run")


def _bare(found: Estimate | None) -> Estimate | None:
    return None if found is None else replace(found, error=None)
