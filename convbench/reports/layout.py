"""Lay out sections of comparable policies as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convbench.reports.document import Document, ReportPart, Table
from convbench.reports.judges import panel_of
from convbench.reports.pairwise import section_tournaments, sibling_tournaments
from convbench.reports.sections import Section, compared_with
from convbench.reports.simulators import flip_reason, simulator_pairs, simulator_siblings
from convbench.reports.starts import foreign_starts
from convbench.reports.tables import (
    adaptation_table,
    best_of_table,
    choice_table,
    control_table,
    count_table,
    difference_table,
    finding_table,
    flagged_table,
    forgetting_tables,
    kind_table,
    main_table,
    matrix_tables,
    meeting_table,
    panel_tables,
    pretraining_table,
    prompt_table,
    reference_table,
    rounds_table,
    run_table,
    simulators_part,
    strength_table,
    temperature_table,
    time_table,
    training_table,
    variance_table,
    win_table,
)
from convbench.stats.means import ErrorKind


def report_document(
    sections: Sequence[Section],
    *,
    judge: str | None = None,
    kind: ErrorKind = "clustered",
    paper: bool = False,
    against: Sequence[str] = (),
    pairwise: bool = False,
) -> Document:
    """Return a report without pictures, with a part for each section and judge; without verdicts,
    one part for the section.

    `judge` limits it to one judge. Parts that compare simulated humans, judges, tasks or kinds of
    self-edits follow where there are any; `pairwise` adds those of judges that compared policies.
    `kind` is the kind of standard errors. `paper` adds published numbers,
    `against` further policies to compare with.
    """
    parts = [
        ReportPart(
            title=_part_title(section, name),
            facts=(
                *foreign_starts(section.policies),
                *_no_wins(section, simulator_siblings(section, sections), name),
            ),
            tables=tuple(table for table in _section_tables(section, name, kind, paper, against)),
        )
        for section in sections
        for name in judges_of(section, judge)
    ]
    parts += [simulators_part(pair) for pair in simulator_pairs(sections)]
    parts += _panel_parts(sections) if judge is None else []
    parts += _pairwise_parts(sections, judge) if pairwise else []
    return Document("convbench report", (*parts, *_comparison_parts(sections, judge, kind)))


def _no_wins(section: Section, others: Sequence[Section], judge: str | None) -> Iterator[str]:
    """Yield a line for each policy that is no winner, whatever the tables' marks and p, because
    another simulated human reverses its ranking."""
    for policy in section.policies:
        why = flip_reason(section, others, policy.name, judge)
        if why is not None:
            yield f"{policy.name} is no winner: {why}."


def _panel_parts(sections: Sequence[Section]) -> list[ReportPart]:
    """Return a part for each section whose judges can be compared."""
    parts = []
    for section in sections:
        panel = panel_of(section)
        if panel is not None:
            tables = tuple(table for table in panel_tables(panel))
            parts.append(ReportPart(f"{section.title}, judges", tables=tables))
    return parts


def _pairwise_parts(sections: Sequence[Section], judge: str | None) -> list[ReportPart]:
    """Return a part for each section and judge that compared its policies."""
    parts = []
    for section in sections:
        for tournament in section_tournaments(section):
            if judge in (None, tournament.judge):
                others = sibling_tournaments(tournament, section, sections)
                tables = (meeting_table(tournament, others), strength_table(tournament))
                named = tuple(table for table in tables if table is not None)
                parts.append(
                    ReportPart(f"{section.title}, pairwise by {tournament.judge}", tables=named)
                )
    return parts


def _comparison_parts(
    sections: Sequence[Section], judge: str | None, kind: ErrorKind
) -> Iterator[ReportPart]:
    """Yield the parts that compare sections: over tasks, and over protocols of one task."""
    for matrix in matrix_tables(sections, judge, kind):
        yield ReportPart(title="All tasks", tables=(matrix,))
    groups: dict[tuple[str, str], list[Section]] = {}
    for section in sections:
        groups.setdefault((section.task, section.mode), []).append(section)
    for (task, mode), group in groups.items():
        for name in dict.fromkeys(name for member in group for name in judges_of(member, judge)):
            kinds = kind_table(group, name, kind)
            tables = [table for table in (prompt_table(group, name), kinds) if table is not None]
            if tables:
                title = f"{task} · {mode}" + (f", judge {name}" if name else "")
                named = tuple(table for table in tables)
                yield ReportPart(title=title, tables=named)


def judges_of(section: Section, judge: str | None) -> list[str | None]:
    """Return the section's judges, or only `judge` if it is named; [None] if that leaves none."""
    return [name for name in section.judges if judge in (None, name)] or [None]


def _part_title(section: Section, judge: str | None) -> str:
    return section.title + (f", judge {judge}" if judge else "")


def _section_tables(
    section: Section, judge: str | None, kind: ErrorKind, paper: bool, against: Sequence[str]
) -> Iterator[Table]:
    yield main_table(section, judge, kind, paper=paper)
    optional_tables = (
        adaptation_table(section, judge, kind),
        choice_table(section, judge),
        pretraining_table(section, judge, kind),
        *forgetting_tables(section, judge),
        time_table(section, judge),
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
        variance_table(section),
    )
    yield from (table for table in optional_tables if table is not None)
    yield count_table(section, judge)
