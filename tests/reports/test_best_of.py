"""Best of N by turn credit: the pure expectation, and the table of a run with credit."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path
from statistics import fmean

import pytest

from convbench.reports.layout import report_document
from convbench.reports.sections import read_sections
from convbench.reports.tables.results import ORACLE, best_of, best_of_table
from convbench.schema.conversation import TurnCredit
from convbench.store.notes import append_credit
from tests.helpers.planted import planted


def counted(scored: list[tuple[float, float]], n: int) -> float:
    """Every subset by hand; ties share."""
    found = []
    for some in combinations(scored, n):
        top = max(first for first, _ in some)
        found.append(fmean(value for first, value in some if first == top))
    return fmean(found)


def test_the_expectation_is_that_over_all_subsets() -> None:
    draw = random.Random(0)
    for count in range(2, 8):
        for _ in range(5):
            # Ties whose rewards differ are shared by all of them, drawn or not: alike on average.
            scored = [(draw.choice([0.0, 1.0, 2.0]), draw.random()) for _ in range(count)]
            for n in range(1, count + 1):
                assert best_of(scored, n) == pytest.approx(counted(scored, n))


def test_the_table_reads_the_runs_credit(tmp_path: Path) -> None:
    run, decisive = planted(tmp_path / "run", 16, 4)
    section = read_sections([run], split="train")[0]
    assert best_of_table(section, "planted", "clustered") is None, "no turn has credit yet"
    for source, sign in (("critic:planted", 1.0), ("critic:contrary", -1.0)):
        append_credit(run, [
            TurnCredit(conversation_id=c.conversation_id, turn_index=1, source=source,
                       advantage=sign * float(c.conversation_id in decisive))
            for c in run.conversations()
        ])  # fmt: skip
    section = read_sections([run], split="train")[0]
    table = best_of_table(section, "planted", "clustered")
    assert table is not None
    assert [c.head for c in table.columns[3:]] == ["N = 1", "N = 2", "N = 4"]
    rows = {row[1].text: [float(cell.text) for cell in row[3:]] for row in table.rows}
    right, wrong, best = (rows[name] for name in ("critic:planted", "critic:contrary", ORACLE))
    assert right[0] == wrong[0] == best[0], "one of one is the mean"
    assert right == pytest.approx(best, abs=0.02), "the planted turns pick as well as can be"
    assert wrong[2] < wrong[1] < wrong[0] < best[1] < best[2]
    parts = report_document([section], judge="planted").parts
    assert any(t.label == "best-of-n" for part in parts for t in part.tables)
