"""ARC-AGI's files: real ones, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench.errors import DataError
from convbench.tasks.arc_agi.edit import GROUPS, edit_rows
from convbench.tasks.arc_agi.grids import (
    Pair,
    Puzzle,
    find_grid,
    format_answer,
    format_grid,
    load,
    parse_grid,
    puzzle_prompt,
    read_reply,
    task_row,
)
from tests.helpers.excerpts import SHARED

REAL = SHARED / "data" / "arc_agi"
ONE = {
    "train": [{"input": [[1, 2]], "output": [[2, 1]]}],
    "test": [{"input": [[3]], "output": [[4]]}],
}


def written_in(folder: Path, **tasks: Any) -> Path:
    for name, task in tasks.items():
        split, _, name = name.partition("_")
        (folder / split).mkdir(exist_ok=True)
        (folder / split / f"{name}.json").write_text(
            task if isinstance(task, str) else json.dumps(task)
        )
    return folder


def test_folders_are_splits(tmp_path: Path) -> None:
    found = list(load(seed=0, folder=str(written_in(tmp_path, training_b=ONE, evaluation_a=ONE))))
    assert [(one["id"], one["split"]) for one in found] == [("b", "train"), ("a", "test")]
    assert found[0]["shown"] == "Input:\n12\nOutput:\n21"
    assert found[0]["outputs"] == [((4,),)]
    shown = str({k: v for k, v in found[0].items() if k != "outputs"})
    assert "4" not in shown, "the test's output is hidden"


def test_ids_are_chosen(tmp_path: Path) -> None:
    folder = str(written_in(tmp_path, training_b=ONE, training_c=ONE))
    assert [one["id"] for one in load(seed=0, folder=folder, ids=["c"])] == ["c"]
    with pytest.raises(DataError, match=r"found no task 'x' \(1 of 2 ids"):
        list(load(seed=0, folder=folder, ids=["b", "x"]))


def test_a_user_is_told_where_tasks_come_from(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"--set task.source.args.folder="):
        list(load(seed=0))
    with pytest.raises(DataError, match="found no tasks; expected JSON files in"):
        list(load(seed=0, folder=str(tmp_path)))


@pytest.mark.parametrize(
    "task",
    ["", "[" * 100_000, "[]", "{}", {"train": [], "test": []}, {**ONE, "test": None},
     {**ONE, "train": [{"input": [[1]]}]}, {**ONE, "train": [{"input": [[10]], "output": [[1]]}]},
     {**ONE, "train": [{"input": [[-1]], "output": [[1]]}]}, {**ONE, "test": ONE["test"] * 31},
     {**ONE, "train": [{"input": [[True]], "output": [[1]]}]},
     {**ONE, "train": [{"input": [[1, 2], [3]], "output": [[1]]}]},
     {**ONE, "train": [{"input": [[1] * 31], "output": [[1]]}]},
     {**ONE, "train": [{"input": [[]], "output": [[1]]}]},
     {**ONE, "train": [{"input": "12", "output": "3"}]}],
    ids=str,
)  # fmt: skip
def test_a_file_that_is_no_task_is_counted(task: Any, tmp_path: Path) -> None:
    found = list(load(seed=0, folder=str(written_in(tmp_path, training_a=task, training_b=ONE))))
    assert [sorted(one) == ["reject"] for one in found] == [True, False]


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no real tasks at {REAL}")
def test_real_tasks() -> None:
    found = list(load(seed=0, folder=str(REAL)))
    assert len(found) == 51
    assert not any("reject" in one for one in found)
    for one in found[:3]:
        pairs = [
            Pair(parse_grid(p["input"]), parse_grid(p["output"])) for p in one["demonstrations"]
        ]
        made = edit_rows(pairs, set(GROUPS), seed=0)
        assert 4 <= len(made) <= 250
        assert all(puzzle.side <= 30 for puzzle in made)


@pytest.mark.parametrize("style", ["lists", "digits", "places"])
def test_what_is_said_is_heard(style: Any) -> None:
    one = parse_grid([[0, 9, 1], [2, 3, 4]])
    assert read_reply(format_answer(one, style) + " and more 12", style) == one
    assert find_grid(format_grid(one, style), style) == one
    said = puzzle_prompt(Puzzle((Pair(one, one),), Pair(one, one)), style, "A rule.")
    assert said[0]["content"] == f"A rule.\n{format_grid(one, style)} -> {format_grid(one, style)}#"
    assert said[1]["content"] == f"{format_grid(one, style)} -> "


@pytest.mark.parametrize("text", ["", "#", "no grid", "[[1, 2], [3]]#", "[[11]]#", "[" * 9000])
def test_replies_without_a_list_of_rows(text: str) -> None:
    assert read_reply(text, "lists") is None


@pytest.mark.parametrize("text", ["", "#", "no grid", "12\n3#", "1" * 31, "1\n" * 31])
def test_replies_without_rows_of_digits(text: str) -> None:
    assert read_reply(text, "digits") is None


@pytest.mark.parametrize(
    "text",
    ["", "#", "no grid", "r2c1=1", "r1c1=1 r1c3=2", "r1c1=1 r1c2=2 r2c1=3", "r1c1=1 r1c1=2",
     "r01c1=1", "r1c1=1 r99c1=2", "r1c1=1 " * 3000, "r1c1=" * 4000],
)  # fmt: skip
def test_replies_without_a_grid_of_places(text: str) -> None:
    assert read_reply(text, "places") is None


def test_a_row_needs_no_split() -> None:
    assert task_row("x", None, ONE)["split"] is None
