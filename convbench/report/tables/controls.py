"""The table of controls: what answers that deserve nothing got from the judge."""

from __future__ import annotations

from convbench.judge.controls import Told, tried, unfit
from convbench.report.document import Cell, Column, Table
from convbench.report.sections import Section
from convbench.report.tables.cells import NONE, decimal


def controls_of(section: Section, judge: str) -> dict[str, list[Told]]:
    """Return what the controls of a judge got, by policy; those of whose runs it was tried on."""
    found = {}
    for policy in section.policies:
        for mark in policy.fingerprints(judge)[:1]:
            if told := tried(policy.run, judge, mark):
                found[policy.name] = told
    return found


def control_table(section: Section, judge: str | None) -> Table | None:
    """Return the controls beside the policy's own conversations about the same examples; None
    where they were not tried."""
    found = controls_of(section, judge) if judge is not None else {}
    if not found:
        return None
    columns = (
        Column("Method", "Method", numeric=False), Column("Control", "Control", numeric=False),
        Column("score", "score"), Column("policy's own", "own"), Column("examples", "n"),
        Column("no score", "none"), Column("", "", numeric=False),
    )  # fmt: skip
    rows = tuple(_row(name, one) for name, told in found.items() for one in told)
    sentences = [text for told in found.values() for text in unfit(told, judge or "")]
    notes = tuple(f"{text[0].upper()}{text[1:]}." for text in sentences) or (
        "No control is paid more than the policy's own answers to the same questions.",
    )
    return Table("Controls: answers that deserve nothing", columns, rows, notes, "controls")


def _row(name: str, one: Told) -> tuple[Cell, ...]:
    scores = (decimal(one.score, 2), decimal(one.own, 2)) if one.examples else (NONE, NONE)
    return (
        Cell(name), Cell(one.control), *scores, Cell(str(one.examples)), Cell(str(one.failed)),
        Cell("above" if one.above else ""),
    )  # fmt: skip
