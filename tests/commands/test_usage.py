"""What does not go together as it was typed ends with exit code 2, like what cannot be parsed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.typed import Typist

MISTAKES = [
    "gold a b",
    "gold export",
    "gold export queue.jsonl --draw 5",
    "gold runs/a --run runs/b",
    "judge --pairwise a b",
    "init recipe mine --open",
    "query nothing --format parquet --out x.parquet --run a --run b --nope",
    "eval scripted:policy --run runs/a --run runs/a",
    "build demo --model scripted:policy --temperatures 0.1,0.2 --samples 3",
    "build demo --model scripted:policy --set odd=1",
    "build demo --model scripted:policy --on moon",
    "import rows.jsonl --map reward",
    "export --to openai --scale 2",
    "train swift --rounds 2 --out folder",
    "report runs/a --run runs/b",
]


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_usage_error_ends_with_2_and_says_so_in_json(typed: str, typist: Typist) -> None:
    typist("build", "demo", "--model", "scripted:policy", "--tasks", "4", "--samples", "1",
           "--temperatures", "0.5", "--run", "runs/a")  # fmt: skip
    said = typist(*typed.split())
    assert (said.code, said.out) == (2, "")
    assert "Traceback" not in said.err
    found = typist.json(*typed.split())
    assert found["exit_code"] == 2
    assert found["error"]


@pytest.mark.parametrize("name", ["gpt-4o", "rules", "rubric@gpt-4o", "openai/gpt-4o"])
def test_a_judge_where_a_run_stands_is_told_how_it_is_typed(name: str, typist: Typist) -> None:
    said = typist("judge", name)
    assert said.code == 2
    assert f"error: convbench judge {name}: found no such run, but a judge" in said.err
    assert f"convbench judge --judge {name}\n" in said.err


def test_what_is_no_judge_either_is_no_run(typist: Typist) -> None:
    said = typist("judge", "runs/nowhere")
    assert (said.code, "runs/nowhere: found no run.json" in said.err) == (1, True)


def test_a_link_that_leads_to_itself_is_told_in_a_line(typist: Typist) -> None:
    typist("build", "demo", "--model", "scripted:policy", "--tasks", "4", "--samples", "1",
           "--temperatures", "0.5", "--run", "runs/a")  # fmt: skip
    Path("loop").symlink_to("loop")
    for words in (
        ("query", "select 1", "--run", "runs/a", "--out", "loop"),
        ("view", "--static", "loop", "--run", "runs/a"),
        ("report", "loop", "--run", "loop"),
    ):
        said = typist(*words)
        assert said.code == 1
        assert "Traceback" not in said.err
        assert "error: " in said.err
        assert "loop" in said.err
