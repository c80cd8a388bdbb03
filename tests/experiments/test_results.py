"""The report of an experiment's folder: its runs, with what is missing and the cost in front."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.reports.document import Table
from convbench.store.steps import is_experiment, write_plan
from tests.helpers import stages
from tests.helpers.cli import convbench
from tests.helpers.runs import make, questions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two seeds of one cell, a damaged run, a step that failed and one that the plan dropped."""
    root = tmp_path / "small"
    for seed in (0, 1):
        make(root / f"demo-thinking-seed{seed}", questions(4), lambda q, k: "A" if k else "B",
             seed=seed, overall=lambda q, k: 5.0)  # fmt: skip
    broken = root / "arc-thinking-seed0"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    steps = ["demo-thinking-seed0/build", "demo-thinking-seed1/train/swift"]
    write_plan(root, "a small table", steps, printed=True)
    ends = [
        {"address": "demo-thinking-seed0/build", "state": "done", "seconds": 1800},
        {"address": "demo-thinking-seed1/train/swift", "state": "failed", "said": ["no room"],
         "seconds": 60},
        {"address": "old-seed0/build", "state": "failed", "said": ["gone"]},
    ]  # fmt: skip
    (root / "steps.jsonl").write_text("".join(json.dumps(end) + "\n" for end in ends))
    return root


def table_of(folder: Path, name: str) -> Table:
    document = stages.report(folder).document
    return next(t for part in document.parts for t in part.tables if t.name == name)


def test_an_experiments_report_has_missing_and_cost_in_front(folder: Path) -> None:
    document = stages.report(folder).document
    assert document.title == "a small table"
    titles = [part.title for part in document.parts]
    assert titles == ["Missing", "Cost and time", "demo · thinking · reasoning, n = 3"]
    missing = [row.cells for row in table_of(folder, "missing").rows]
    assert missing[0] == ("demo-thinking-seed1: train swift", "no room")
    assert [row[0] for row in missing[1:]] == ["arc-thinking-seed0"]  # the plan dropped old-seed0
    results = table_of(folder, "results")
    assert results.rows[0].cells[1].n == 24  # type: ignore[union-attr]  # both seeds together
    assert not any(picture for part in document.parts for picture in part.pictures)


def test_cost_is_that_of_records_and_journals(folder: Path) -> None:
    run = folder / "demo-thinking-seed0"
    lines = [json.loads(line) for line in (run / "verdicts.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"cost_usd": 0.25, "prompt_tokens": 10, "completion_tokens": 5}
    (run / "verdicts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = {row.cells[0]: row.cells[1:] for row in table_of(folder, "cost").rows}
    judged = len(lines)
    assert rows["demo-thinking-seed0"] == (0, 0.25 * judged, 0, 0.25 * judged, 15 * judged, 0.5)
    assert rows["All"][3] == 0.25 * judged
    assert rows["All"][5] == pytest.approx(1860 / 3600)


def test_report_of_an_experiment_prints_the_format_that_is_asked_for(folder: Path) -> None:
    found = convbench(folder.parent, "report", "small", "--format", "json")
    assert [part["title"] for part in json.loads(found.out)["parts"]][:2] == [
        "Missing", "Cost and time"
    ]  # fmt: skip
    assert convbench(folder.parent, "report", "small", "--format", "csv").out.startswith("part,")
    assert not (folder / "report").exists()


def test_an_experiment_is_a_folder_of_cells(folder: Path) -> None:
    assert is_experiment(folder)
    assert not is_experiment(folder / "demo-thinking-seed0")
    (folder / "plan.json").unlink()
    (folder / "steps.jsonl").unlink()
    assert is_experiment(folder)
