"""Lay out sections of comparable policies as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from convbench.report.document import Document, Part, Table
from convbench.report.judges import panel_of
from convbench.report.pairwise import beside, tournaments
from convbench.report.sections import Section, compared_with
from convbench.report.simulators import flipped, siblings, two_simulators
from convbench.report.starts import foreign_starts
from convbench.report.tables import (
    adaptation_table,
    best_of_table,
    choice_table,
    control_table,
    count_table,
    difference_table,
    finding_table,
    flagged_table,
    kind_table,
    main_table,
    matrix_tables,
    meeting_table,
    panel_tables,
    reference_table,
    review_table,
    rounds_table,
    run_table,
    simulators_part,
    strength_table,
    temperature_table,
    training_table,
    win_table,
)
from convbench.stats.means import ErrorKind


def document(
    sections: Sequence[Section],
    *,
    judge: str | None = None,
    kind: ErrorKind | None = None,
    paper: bool = False,
    against: Sequence[str] = (),
    pairwise: bool = False,
) -> Document:
    """Return a report with a part for each section and judge: the judge named, or every judge, or
    one part without a judge if there are no verdicts. `pairwise` adds a part for each judge that
    compared policies. Standard errors are of `kind`, or of each section's regime. `against` names
    further policies that all others are compared with."""
    parts = [
        Part(
            title=_title(section, name),
            facts=(
                *foreign_starts(section.policies),
                *_no_wins(section, siblings(section, sections), name),
            ),
            tables=tuple(
                _named(table, section)
                for table in _tables(section, name, section.errors(kind), paper, against)
            ),
        )
        for section in sections
        for name in judges_of(section, judge)
    ]
    parts += _reviews(sections)
    parts += [simulators_part(found) for found in two_simulators(sections)]
    parts += _panels(sections) if judge is None else []
    parts += _pairwise(sections, judge) if pairwise else []
    return Document("convbench report", (*parts, *_across(sections, judge, kind)))


def _no_wins(section: Section, others: Sequence[Section], judge: str | None) -> Iterator[str]:
    """Yield a line for each policy that is no winner, whatever the tables' marks and p, because
    another simulated human reverses its ranking."""
    for policy in section.policies:
        why = flipped(section, others, policy.name, judge)
        if why is not None:
            yield f"{policy.name} is no winner: {why}."


def _reviews(sections: Sequence[Section]) -> list[Part]:
    """Return a part for each section whose simulated human was reviewed."""
    found = [(section, review_table(section)) for section in sections]
    return [
        Part(f"{section.title}, simulated human", tables=(_named(table, section),))
        for section, table in found
        if table is not None
    ]


def _panels(sections: Sequence[Section]) -> list[Part]:
    """Return a part for each section whose judges can be compared."""
    parts = []
    for section in sections:
        found = panel_of(section)
        if found is not None:
            tables = tuple(_named(table, section) for table in panel_tables(found))
            parts.append(Part(f"{section.title}, judges", tables=tables))
    return parts


def _pairwise(sections: Sequence[Section], judge: str | None) -> list[Part]:
    """Return a part for each section and judge that compared its policies."""
    parts = []
    for section in sections:
        for found in tournaments(section):
            if judge in (None, found.judge):
                others = beside(found, section, sections)
                tables = (meeting_table(found, others), strength_table(found))
                named = tuple(_named(table, section) for table in tables if table is not None)
                parts.append(Part(f"{section.title}, pairwise by {found.judge}", tables=named))
    return parts


def _across(
    sections: Sequence[Section], judge: str | None, kind: ErrorKind | None
) -> Iterator[Part]:
    """Yield the parts that compare sections: over tasks, and over protocols of one task."""
    errors = sections[0].errors(kind) if sections else None
    for matrix in matrix_tables(sections, judge, errors):
        yield Part(title="All tasks", tables=(_named(matrix, sections[0]),))
    alike: dict[tuple[str, str, str], list[Section]] = {}
    for section in sections:
        alike.setdefault((section.task, section.mode, section.regime), []).append(section)
    for (task, mode, _), found in alike.items():
        for name in dict.fromkeys(name for one in found for name in judges_of(one, judge)):
            table = kind_table(found, name, found[0].errors(kind))
            if table is not None:
                title = f"{task} · {mode}" + (f", judge {name}" if name else "")
                yield Part(title=title, tables=(_named(table, found[0]),))


def judges_of(section: Section, judge: str | None) -> list[str | None]:
    """Return the judges to report on: the one named, or all. [None] if there is no judge."""
    return [name for name in section.judges if judge in (None, name)] or [None]


def _title(section: Section, judge: str | None) -> str:
    return section.title + (f", judge {judge}" if judge else "")


def _named(table: Table, section: Section) -> Table:
    """Return the table with the section's regime added to its caption."""
    return replace(table, caption=f"{table.caption} ({section.regime} regime)")


def _tables(
    section: Section, judge: str | None, kind: ErrorKind, paper: bool, against: Sequence[str]
) -> Iterator[Table]:
    yield main_table(section, judge, kind, paper=paper)
    found = (
        adaptation_table(section, judge, kind),
        choice_table(section, judge),
        reference_table(section, judge, kind) if paper else None,
        difference_table(section, judge, kind),
        *(difference_table(other, judge, kind) for other in compared_with(section, against)),
        win_table(section, judge, kind),
        rounds_table(section, judge, kind),
        run_table(section, judge),
        temperature_table(section, judge, kind),
        flagged_table(section, judge, kind),
        control_table(section, judge),
        best_of_table(section, judge, kind),
        finding_table(section),
        training_table(section),
    )
    yield from (table for table in found if table is not None)
    yield count_table(section, judge)
