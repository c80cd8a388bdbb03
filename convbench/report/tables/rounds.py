"""What each round of learners that go in rounds came to."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.report.document import Cell, Column, Table
from convbench.report.measures import Measure
from convbench.report.policies import Policy, round_of
from convbench.report.sections import Section
from convbench.report.tables.cells import column, measures_of, number, scales
from convbench.report.tables.results import ERRORS
from convbench.stats.means import ErrorKind


def rounds_of(section: Section) -> dict[str, dict[int, Policy]]:
    """Return by learner each round's policy, Base as round 0 where it is there; learners that went
    through two rounds at least."""
    found: dict[str, dict[int, Policy]] = {}
    for policy in section.policies:
        which = round_of(policy)
        if which is not None:
            found.setdefault(which[0], {})[which[1]] = policy
    start = {0: section.base} if section.base else {}
    return {
        name: {**start, **dict(sorted(some.items()))}
        for name, some in found.items()
        if len(some) > 1
    }


def rounds_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return the rounds of each learner, one line a round; None where none went through two."""
    found = rounds_of(section)
    if not found:
        return None
    measures = measures_of(section, judge)
    columns = (
        Column("Learner", "Learner", numeric=False), Column("Round", "Round"),
        Column("Learnt from", "Rows"), *(column(measure) for measure in measures),
    )  # fmt: skip
    rows = tuple(row for name, some in found.items() for row in _lines(name, some, measures, kind))
    notes = (
        f"Mean ± {ERRORS[kind]}; round 0 is Base. Learnt from: training rows, of which so many of "
        "earlier rounds' logs (`replay`).",
        *scales(measures),
    )
    return Table("Rounds", columns, rows, notes, "rounds")


def _lines(
    name: str, policies: dict[int, Policy], measures: list[Measure], kind: ErrorKind
) -> Iterator[tuple[Cell, ...]]:
    for place, policy in policies.items():
        cells = (number(m.of(policy, kind), m.digits) for m in measures)
        yield (Cell(name), Cell(str(place)), Cell(_rows(policy)), *cells)


def _rows(policy: Policy) -> str:
    counts = policy.training.get("counts") or {}
    rows = counts.get("pairs", counts.get("rows"))
    old = counts.get("rows of further runs")
    if rows is None or policy.is_base:
        return "-"
    return f"{rows} ({old})" if old else str(rows)
