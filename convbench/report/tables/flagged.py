"""Results with and without the conversations that a fidelity check flagged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from convbench.report.document import Cell, Column, Table
from convbench.report.measures import ACCURACY
from convbench.report.policies import Policy
from convbench.report.rows import Observation
from convbench.report.sections import Section
from convbench.report.tables.cells import column, headline, measures_of, number, scales
from convbench.report.tables.results import ERRORS
from convbench.stats.means import ErrorKind


def flagged_table(section: Section, judge: str | None, kind: ErrorKind) -> Table | None:
    """Return accuracy and the judge's headline over all conversations and over those without a
    flag; None where nothing is flagged."""
    if not any(row.flags for policy in section.policies for row in policy.rows):
        return None
    top = headline(measures_of(section, judge))
    measures = [
        measure
        for measure in (ACCURACY, top)
        if measure and any(measure.of(policy) for policy in section.policies)
    ]
    columns = [
        Column("Method", "Method", numeric=False), Column("conversations", "all"),
        Column("flagged", "flagged"),
    ]  # fmt: skip
    for measure in measures:
        plain = column(measure)
        columns += [
            Column(f"{plain.head}, all", f"{plain.short} all"),
            Column(f"{plain.head}, unflagged", f"{plain.short} unfl."),
        ]
    lines = []
    for policy in section.policies:
        marks = [bool(row.flags) for row in _had(policy)]
        cells = [Cell(policy.name), Cell(str(len(marks))), _share(sum(marks), len(marks))]
        for measure in measures:
            clean = (row for row in _had(policy) if not row.flags)
            both = (measure.over(rows, kind) for rows in (_had(policy), clean))
            cells += [number(found, measure.digits) for found in both]
        lines.append(tuple(cells))
    notes = (
        "Failed conversations count nowhere. Which conversations are flagged differs from method "
        "to method, so the unflagged ones are about other questions: compare along a line, not "
        f"down a column. Mean ± {ERRORS[kind]}.",
        *scales(measures),
    )
    caption = "With and without flagged conversations"
    return Table(caption, tuple(columns), tuple(lines), notes, "flagged")


def finding_table(section: Section) -> Table | None:
    """Return how many conversations of each method have each flag; None where nothing is
    flagged. A conversation may have several."""
    found = {
        p.name: Counter(f for row in _had(p) for f in set(row.flags)) for p in section.policies
    }
    names = sorted({flag for counter in found.values() for flag in counter})
    if not names:
        return None
    columns = (
        Column("Flag", "Flag", numeric=False),
        *(Column(policy.name, policy.name) for policy in section.policies),
    )
    had = {p.name: sum(1 for _ in _had(p)) for p in section.policies}
    rows = tuple(
        (Cell(name), *(_share(found[p.name][name], had[p.name]) for p in section.policies))
        for name in names
    )
    notes = ("Conversations with the flag (speaker: finding), and their share.",)
    return Table("Flags", columns, rows, notes, "flags")


def _had(policy: Policy) -> Iterator[Observation]:
    return (row for row in policy.rows if not row.failed)


def _share(count: int, all_: int) -> Cell:
    return Cell(f"{count} ({100 * count / all_:.1f}%)" if all_ else "-")
