"""What a run holds, in a few numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.store import sidecars
from convbench.store.overview import read_overview
from tests.helpers.viewer_runs import RIGHT, make, many, question
from tests.support.memory import BLOCK, held_below

ASKED = [question(n) for n in range(3)]


def test_the_newest_record_of_each_name_counts(tmp_path: Path) -> None:
    """One failed and was said again, one failed; a judge scored one of them twice."""
    talks = [(0, 0, None, {}), (1, 0, RIGHT, {}), (0, 0, RIGHT, {}), (2, 1, None, {})]
    run = make(tmp_path / "run", ASKED, talks, {"rules": lambda k: 8.0, "rubric": lambda k: 5.0})
    found = read_overview(run)
    assert (found.conversations, found.failed, found.judges) == (2, 1, ("rules", "rubric"))
    assert found.usd == pytest.approx(2 * 0.003)


def test_a_price_that_is_unknown_makes_the_sum_unknown(tmp_path: Path) -> None:
    run = make(tmp_path / "run", ASKED, [(0, 0, RIGHT, {}), (1, 0, RIGHT, {})], {})
    told = run.conversations_file.read_text().replace('"cost_usd":0.001', '"cost_usd":null', 1)
    run.conversations_file.write_text(told)
    assert read_overview(run).usd is None


@pytest.mark.exhaustive
def test_it_holds_little_of_each_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once they are indexed, which holds the rows of one piece at a time."""
    monkeypatch.setattr(sidecars, "SETTLE_SECONDS", -1.0)
    monkeypatch.setattr("convbench.store.index.SMALL", 0)
    runs = {n: many(tmp_path / str(n), n) for n in (2 * BLOCK, BLOCK, BLOCK // 2)}
    monkeypatch.setattr("convbench.store.index.WORTH", 1)
    for count, run in runs.items():
        assert read_overview(run).conversations == count
    held_below(20, lambda count: read_overview(runs[count]), BLOCK, 2 * BLOCK)
