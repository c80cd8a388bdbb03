"""What was planned, had, failed, unparsed and scored."""

from __future__ import annotations

from convbench.report.document import Cell, Column, Table
from convbench.report.policies import Policy
from convbench.report.sections import Section


def count_table(section: Section, judge: str | None) -> Table:
    """Return what was planned, had, failed, unparsed and scored."""
    heads = ["planned", "missing", "failed", "had", "unparsed", "flagged"]
    heads += ["scored", "judge failed", "unjudged"] if judge else []
    rows = []
    for policy in section.policies:
        numbers = counts(policy, judge)
        rows.append((Cell(policy.name), *(Cell(str(numbers[head])) for head in heads)))
    columns = (Column("Conversations", "Method", False), *(Column(head, head) for head in heads))
    notes = (
        "Missing and failed conversations count nowhere; unparsed answers count as wrong; a "
        "judge's failure is no score.",
    )
    return Table("Counts", columns, tuple(rows), notes, "counts")


def counts(policy: Policy, judge: str | None = None) -> dict[str, int]:
    """Return a policy's counts of conversations by what became of them."""
    rows = policy.rows
    verdicts = [row.verdicts.get(judge) if judge else None for row in rows if not row.failed]
    return {
        "planned": policy.planned,
        "missing": policy.planned - len(rows),
        "failed": sum(row.failed for row in rows),
        "had": sum(not row.failed for row in rows),
        "unparsed": sum(row.unparsed for row in rows),
        "flagged": sum(bool(row.flags) for row in rows if not row.failed),
        "scored": sum(v is not None and not v.failed for v in verdicts),
        "judge failed": sum(v is not None and v.failed for v in verdicts),
        "unjudged": sum(v is None for v in verdicts),
    }
