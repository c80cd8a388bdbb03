"""WebSight's rows as tasks: the release's rows, its halves, and what has no page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from convbench import catalog
from convbench.schema import TaskSpec
from convbench.tasks import websight
from convbench.tasks.load import load_examples


def row(number: int) -> dict[str, str]:
    return {"llm_generated_idea": f"Idea {number}", "text": f"<html>{number}</html>"}


def test_no_more_than_the_first_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websight, "FIRST", 6)

    def endless() -> Iterator[dict[str, str]]:
        for number in range(7):
            yield row(number)
        raise AssertionError("read beyond the first six")

    found = list(websight.pages(endless(), seed=3))
    assert [one["split"] for one in found] == ["train"] * 3 + ["test"] * 3
    assert found[5] == {"id": "websight-00005", "idea": "Idea 5", "page": "<html>5</html>",
                        "split": "test"}  # fmt: skip


def test_a_row_without_a_page_is_counted_and_keeps_the_halves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websight, "FIRST", 4)
    rows = [row(0), {"llm_generated_idea": "x"}, row(2), row(3)]
    found = list(websight.pages(rows, seed=0))
    assert found[1] == {"reject": "no idea or no page"}
    assert [one.get("split") for one in found] == ["train", None, "test", "test"]


def test_the_task_reads_a_local_copy(tmp_path: Path) -> None:
    file = tmp_path / "websight.jsonl"
    file.write_text("".join(json.dumps(row(n)) + "\n" for n in range(10_010)))
    sets = {"source.file": str(file), "sample.count": 10}
    task = catalog.load_spec(TaskSpec, "tasks", "websight", sets=sets)
    examples = load_examples(task, 0).examples
    assert {s: sum(e.split == s for e in examples) for s in ("train", "test")} == {
        "train": 8, "test": 2,
    }  # fmt: skip
    for one in examples:
        number = int(one.example_id.removeprefix("websight-"))
        assert one.question == f"Idea {number}"
        assert one.hidden["reference"] == f"<html>{number}</html>"
        assert (number >= 10_000) == (one.split == "test")
        assert "reference" not in one.inputs
