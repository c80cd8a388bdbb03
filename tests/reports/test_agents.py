"""Tables of policies that called tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench.reports.agents import agent_tables, pass_all, pass_at
from convbench.reports.frame import read_settings
from convbench.stats.estimates import Estimate, estimate
from tests.helpers.imports import import_rows


def tried(question: int, success: bool, failed: bool = False) -> dict[str, Any]:
    """A conversation with a call, whose result may be an error."""
    call = {"id": "c", "function": {"name": "look", "arguments": "{}"}}
    return {
        "messages": [
            {"role": "user", "content": f"Question {question}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "Error: no" if failed else "7"},
            {"role": "assistant", "content": "It is 7."},
        ],
        "reward": float(success),
    }


@pytest.mark.parametrize(("n", "c", "k", "one", "each"), [
    (5, 2, 3, 0.9, 0.0), (5, 2, 2, 0.7, 0.1), (4, 4, 4, 1.0, 1.0), (4, 0, 2, 0.0, 0.0),
])  # fmt: skip
def test_pass_at_and_pass_all_are_the_published_formulas(
    n: int, c: int, k: int, one: float, each: float
) -> None:
    assert pass_at(n, c, k) == pytest.approx(one)
    assert pass_all(n, c, k) == pytest.approx(each)


def test_pass_over_questions_has_the_error_of_their_values() -> None:
    """Three questions of which 5, 2 and 0 of 5 tries succeeded."""
    found = estimate(["a", "b", "c"], [pass_at(5, c, 3) for c in (5, 2, 0)])
    assert found is not None
    assert found.mean == pytest.approx(0.633333, abs=1e-6)
    assert found.error == pytest.approx(0.317980, abs=1e-6)
    assert sum(pass_all(5, c, 3) for c in (5, 2, 0)) / 3 == pytest.approx(1 / 3)


def test_agent_tables_are_means_over_questions(tmp_path: Path) -> None:
    right = {0: 5, 1: 2, 2: 0}
    rows = [tried(q, i < c, failed=q == 2) for q, c in right.items() for i in range(5)]
    run = import_rows(tmp_path, rows).run
    assert run is not None
    (setting,) = read_settings([run], "train")
    policies, tools = agent_tables(setting)
    (row,) = policies.rows
    cells = dict(zip([column.key for column in policies.columns], row.cells, strict=True))
    for k in (2, 4):
        for name, chance in ((f"pass@{k}", pass_at), (f"pass^{k}", pass_all)):
            cell = cells[name]
            assert isinstance(cell, Estimate)
            expected = sum(chance(5, c, k) for c in right.values()) / 3
            assert cell.mean == pytest.approx(expected)
            assert cell.n == 3
    success = cells["success"]
    assert isinstance(success, Estimate)
    assert success.mean == pytest.approx(7 / 15)
    assert cells["calls"] == 1.0
    assert cells["errors"] == pytest.approx(100 / 3)
    assert [row.cells[1:] for row in tools.rows] == [("look", 15, 5)]


def test_agent_tables_are_none_without_calls(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    run = import_rows(tmp_path, [{"messages": said, "reward": 1}]).run
    assert run is not None
    (setting,) = read_settings([run], "train")
    assert list(agent_tables(setting)) == []
