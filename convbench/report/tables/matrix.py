"""Every policy on every task: one row a policy, one column a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from convbench.report.document import Cell, Column, Table
from convbench.report.measures import ACCURACY, Measure, reward
from convbench.report.policies import Policy
from convbench.report.sections import Section
from convbench.report.tables.cells import NONE, decimal, number
from convbench.report.tables.results import ERRORS, ranks_of
from convbench.stats.means import ErrorKind, Estimate


def matrix_tables(
    sections: Sequence[Section], judge: str | None, kind: ErrorKind | None
) -> Iterator[Table]:
    """Yield policies by tasks: one table of accuracies or, where no task has them, one of each
    judge's rewards; none for one task, or where no policy but Base was asked of two."""
    names = dict.fromkeys(policy.name for section in sections for policy in section.policies)
    asked = {name: sum(_named(s, name) is not None for s in sections) for name in names}
    shared = any(count > 1 for name, count in asked.items() if name != "Base")
    if kind is None or len({section.task for section in sections}) < 2 or not shared:
        return
    if any(ACCURACY.of(policy) for section in sections for policy in section.policies):
        yield _table(sections, list(names), ACCURACY, kind)
        return
    for one in dict.fromkeys(name for section in sections for name in section.judges):
        if judge in (None, one):
            yield _table(sections, list(names), reward(one), kind)


def _table(
    sections: Sequence[Section], names: Sequence[str], measure: Measure, kind: ErrorKind
) -> Table:
    lines = [[_value(section, name, measure, kind) for section in sections] for name in names]
    ranks = [ranks_of(list(column), measure) for column in zip(*lines, strict=True)]
    rows = []
    for place, (name, values) in enumerate(zip(names, lines, strict=True)):
        cells = (
            number(value, measure.digits, marks[place])
            for value, marks in zip(values, ranks, strict=True)
        )
        rows.append((Cell(name), *cells, _mean(values, measure)))
    columns = (
        Column("Method", "Method", numeric=False),
        *(Column(head, head) for head in _heads(sections)),
        Column("Mean of tasks", "Mean"),
    )
    notes = (
        f"{measure.head}, mean ± {ERRORS[kind]}; the last column counts every task alike, where a "
        "policy was asked of all.",
    )
    return Table("Policies by tasks", columns, tuple(rows), notes, "matrix")


def _heads(sections: Sequence[Section]) -> list[str]:
    """Return a name a section: its task, with what tells it from another of the same task."""
    tasks = [section.task for section in sections]
    return [
        section.task if tasks.count(section.task) == 1 else section.title for section in sections
    ]


def _named(section: Section, name: str) -> Policy | None:
    return next((policy for policy in section.policies if policy.name == name), None)


def _value(section: Section, name: str, measure: Measure, kind: ErrorKind) -> Estimate | None:
    policy = _named(section, name)
    return None if policy is None else measure.of(policy, kind)


def _mean(values: Sequence[Estimate | None], measure: Measure) -> Cell:
    there = [value.mean for value in values if value is not None]
    if len(there) < len(values):
        return NONE
    return decimal(fmean(there), measure.digits)
