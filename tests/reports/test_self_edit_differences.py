"""Differences of self-edits are by passage, which a table says where its means tell another."""

from __future__ import annotations

from convbench.judges.adaptation.accuracies import NOTHING, UNTRAINED
from convbench.reports.tables.adaptation import taught_table

EDITS = [("one", 0.0), ("one", 0.0), ("one", 0.0), ("two", 1.0)]
"""Mean .25 of four edits; .5 of two passages."""


def test_differences_that_are_not_those_of_the_means_are_said() -> None:
    seal = [("one", 0.5), ("two", 1.0)]
    table = taught_table({UNTRAINED: EDITS, "SEAL": seal})
    (row,) = [row for row in table.rows if row[0].text == "SEAL"]
    assert (row[1].text, row[3].text) == ("0.750", "+0.250")  # and not .75 - .25
    assert "not the differences of the means (SEAL)" in " ".join(table.notes)


def test_nothing_is_said_where_they_agree() -> None:
    table = taught_table({NOTHING: [("one", 0.0), ("two", 0.0)], UNTRAINED: [
        ("one", 0.5), ("one", 0.5), ("two", 1.0), ("two", 1.0),
    ]})  # fmt: skip
    assert "differences of the means" not in " ".join(table.notes)
