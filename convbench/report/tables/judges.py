"""Judges beside each other: what `report` says of them in a part of its own."""

from __future__ import annotations

from collections.abc import Iterator

from convbench.report.document import Cell, Column, Table
from convbench.report.judges import PanelOf
from convbench.report.tables.cells import NONE, decimal, with_interval

FEW = 40
"""Labels below which people's scores say little."""


def panel_tables(found: PanelOf) -> Iterator[Table]:
    """Yield agreement, what the panel is worth, and what moves each judge, as far as there is."""
    if found.agreed:
        yield _agreement(found)
    if found.votes is not None:
        yield _worth(found)
    if any(one.length or one.own or one.first for one in found.moved):
        yield _moved(found)


def _agreement(found: PanelOf) -> Table:
    rows = [
        (
            Cell(f"{one.first} / {one.second}"), Cell(str(one.common)), decimal(one.equal, 2),
            decimal(one.kappa, 2), decimal(one.correlation, 2), *with_interval(one.apart, 3),
        )
        for one in found.agreed
    ]  # fmt: skip
    columns = (
        Column("Judges", "Judges", numeric=False), Column("common", "common"),
        Column("equal", "equal"), Column("kappa", "kappa"), Column("Spearman", "Spearm."),
        Column("first − second", "1st−2nd"), Column("95% interval", "95%"),
    )  # fmt: skip
    notes = [
        "Each judge's headline score, brought to 0 to 1 by its own scale, on the conversations "
        "that both scored, of all methods; kappa is quadratically weighted."
    ]
    if found.alpha is not None:
        notes.append(f"Ordinal Krippendorff alpha over all: {found.alpha:.2f}.")
    return Table("Agreement of judges", columns, tuple(rows), tuple(notes), "agreement")


def _worth(found: PanelOf) -> Table:
    worth = found.votes
    assert worth is not None
    sign = "" if found.by_people else "at least "
    ends = NONE if worth.low is None else Cell(f"[{worth.low:.2f}, {worth.high:.2f}]")
    row = (
        Cell(f"{worth.judges} judges"), decimal(worth.correlation, 2, sign="+"),
        Cell(f"{sign}{worth.votes:.2f}"), ends, Cell(str(worth.conversations)),
        Cell(str(worth.groups)),
    )  # fmt: skip
    columns = (
        Column("Panel", "Panel", numeric=False), Column("mean correlation", "corr."),
        Column("independent votes", "votes"), Column("95% interval", "95%"),
        Column("conversations", "talks"), Column("groups", "groups"),
    )  # fmt: skip
    note = "Kish's effective number k / (1 + (k − 1) r), r the mean correlation of two judges' "
    if found.by_people:
        note += f"errors against people's scores of {found.labelled} conversations."
    else:
        note += (
            "scores: nobody labelled these, and what is true of a conversation makes scores "
            "correlate too, so that this is a lower bound."
        )
    notes = [note]
    if found.by_people and found.labelled < FEW:
        notes.append(f"Fewer than {FEW} labels: read the interval as too narrow.")
    return Table("Worth of the panel", columns, (row,), tuple(notes), "votes")


def _moved(found: PanelOf) -> Table:
    rows = [
        (
            Cell(one.judge), Cell(one.against), Cell(str(one.n)), *with_interval(one.length, 3),
            *with_interval(one.own, 3), *with_interval(one.first, 3, sign=""),
        )
        for one in found.moved
    ]  # fmt: skip
    columns = (
        Column("Judge", "Judge", numeric=False), Column("against", "against", numeric=False),
        Column("conversations", "talks"), Column("twice as long", "2x long"),
        Column("95% interval", "95%"), Column("own family", "own"),
        Column("95% interval", "95%"), Column("shown first", "first"),
        Column("95% interval", "95%"),
    )  # fmt: skip
    notes = (
        "How a judge's headline (0 to 1), less what it is held against, moves where a conversation "
        "has twice as many words, and between its own model family's policies and others'; "
        "clustered by group (jackknife). Against other judges it shows how this one differs from "
        "them; against nothing a length may simply be worth it. Shown first: how far it prefers "
        "the first of two (judge --pairwise), 0.5 being no bias.",
    )
    return Table("What moves a judge", columns, tuple(rows), notes, "moved")
