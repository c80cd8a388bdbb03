"""Counts of conversations: planned, complete, failed, unparsed, scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from convbench.report.document import Cell, Column, Table
from convbench.report.policies import Policy
from convbench.report.rows import Observation
from convbench.report.sections import Section


def count_table(section: Section, judge: str | None) -> Table:
    """Return the table of conversations planned, complete, failed, unparsed and scored."""
    heads = ["planned", "missing", "failed", "complete", "unparsed", "flagged"]
    heads += ["scored", "judge failed", "unjudged"] if judge else []
    rows = []
    for policy in section.policies:
        numbers = conversation_counts(policy, judge)
        rows.append((Cell(policy.name), *(Cell(str(numbers[head])) for head in heads)))
    columns = (Column("Conversations", "Method", False), *(Column(head, head) for head in heads))
    notes = (
        "Missing and failed conversations count nowhere; unparsed answers count as wrong; a "
        "judge's failure is no score.",
    )
    return Table("Counts", columns, tuple(rows), notes, "counts")


def conversation_counts(policy: Policy, judge: str | None = None) -> dict[str, int]:
    """Return a policy's number of conversations by outcome."""
    outcomes: Counter[str] = Counter()
    for row in policy.observations:
        outcomes.update(_row_outcomes(row, judge))
    heads = ("failed", "complete", "unparsed", "flagged", "scored", "judge failed", "unjudged")
    missing = policy.planned - len(policy.observations)
    return {
        "planned": policy.planned,
        "missing": missing,
        **{head: outcomes[head] for head in heads},
    }


def _row_outcomes(row: Observation, judge: str | None) -> Iterator[str]:
    """Yield the outcomes of a conversation."""
    if row.unparsed:
        yield "unparsed"
    if row.failed:
        yield "failed"
        return
    yield "complete"
    if row.flags:
        yield "flagged"
    scored = row.verdicts.get(judge or "")
    yield "unjudged" if scored is None else "judge failed" if scored.failed else "scored"
