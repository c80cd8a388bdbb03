"""Rows nobody could answer are left out with a count; two files of one split are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import DataError
from convbench.schema import TaskSpec
from convbench.tasks.load import LoadResult, load_examples


def row(number: int, *options: str | None, **more: Any) -> dict[str, Any]:
    return {"id": f"q{number}", "question": f"Which {number}?", "options": list(options),
            "gold": 0, "topic": "t", **more}  # fmt: skip


def loaded(folder: Path, *rows: dict[str, Any], **values: Any) -> LoadResult:
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return load(folder, **values)


def load(folder: Path, **values: Any) -> LoadResult:
    spec = folder / "mine.yaml"
    spec.write_text(json.dumps({
        "name": "mine", "title": "Mine", "source": {"file": str(folder)}, "protocol": "reasoning",
        "rows": {"key": "id", "question": "question", "choices": "options", "answer": "gold",
                 **values},
        "answer": {"kind": "text" if "choices" in values else "choice"}, "sample": {"count": "all"},
        "licence": {"id": "unknown"},
    }))  # fmt: skip
    return load_examples(catalog.load_spec(TaskSpec, "tasks", str(spec)), 0)


GOOD = (row(0, "ash", "birch"), row(1, "oak", "elm"))


@pytest.mark.parametrize(("options", "reason"), [
    (("only",), "with one option only"),
    (("", "birch"), "with an empty option"),
    (("  ", "birch"), "with an empty option"),
    ((None, "birch"), "with an empty option"),
    (("birch", "birch "), "with two equal options"),
    (("ash", "birch", "ash"), "with two equal options"),
])  # fmt: skip
def test_a_row_that_nobody_could_answer_is_counted(
    tmp_path: Path, options: tuple[str | None, ...], reason: str
) -> None:
    found = loaded(tmp_path, *GOOD, row(2, *options))
    assert (len(found.examples), found.rejected) == (2, {reason: 1})


def test_the_word_none_is_an_option_like_any_other(tmp_path: Path) -> None:
    found = loaded(tmp_path, *GOOD, row(2, "None", "all of them"))
    assert (len(found.examples), found.rejected) == (3, {})


def test_nothing_is_no_answer(tmp_path: Path) -> None:
    rows = [{"id": f"q{n}", "question": f"Which {n}?", "gold": g} for n, g in enumerate("ab")]
    found = loaded(tmp_path, *rows, {**rows[0], "id": "q2", "gold": None}, choices=None)
    assert (len(found.examples), found.rejected) == (2, {"without an answer": 1})


@pytest.mark.parametrize("key", ["id", "topic"])
def test_nothing_is_no_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(DataError, match="found None; expected a name"):
        loaded(tmp_path, *GOOD, row(2, "a", "b", **{key: None}), group="topic")


def test_two_files_of_one_split_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([GOOD[0]]))
    with pytest.raises(DataError, match=r"found train.json and train.jsonl; expected one file"):
        loaded(tmp_path, *GOOD)
