"""Tasks of grids as pictures: demonstrations, predictions, the truth; hostile ones stay text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench.schema import Verdict
from convbench.store import Run
from tests.helpers import few_shot_runs
from tests.helpers.viewing import Looked, viewing


def told(run: Run, example: str, attempts: Any) -> None:
    """Write a verdict that holds these attempts."""
    judge = few_shot_runs.quick_judge()
    run.store_judge(judge.fingerprint, judge.spec)
    found = Verdict(
        conversation_id=f"{run.manifest.id}-{example}-0", judge="few-shot-pocket",
        fingerprint=judge.fingerprint, scores={"accuracy": 0.0, "overall": 0.0}, reward=0.0,
        details={"attempts": attempts},
    )  # fmt: skip
    run.verdicts_file.write_text(found.model_dump_json() + "\n")


@pytest.mark.exhaustive
def test_a_task_is_drawn_with_predictions_and_truth(look: Looked, tmp_path: Path) -> None:
    one = few_shot_runs.some_tasks(1)[0]
    run = few_shot_runs.edits_run(tmp_path / "run", [one], {one.example_id: [few_shot_runs.CHEAP]})
    truth = one.hidden["outputs"][0]
    told(run, one.example_id, [[[[5, 5], [5, 5]], truth]])
    with viewing(run.path) as viewer:
        page = look.open(viewer.page(f"#/c/{run.manifest.id}-{one.example_id}-0"))
        page.get_by_role("heading", name="5 demonstrations").wait_for()
        captions = page.locator(".grids figcaption").all_inner_texts()
        assert captions == [
            *["input", "output"] * 5, "input", "prediction 1 (few-shot-pocket), wrong",
            "prediction 2 (few-shot-pocket), right", "truth",
        ]  # fmt: skip
        drawn = page.locator(".grids svg").last
        assert drawn.locator("rect").count() == sum(map(len, truth))
        assert drawn.get_attribute("aria-label") == (
            f"truth: {len(truth)} by {len(truth[0])}: "
            + " / ".join(" ".join(map(str, row)) for row in truth)
        )
        fill = "e => getComputedStyle(e).fill"
        classes = {c.get_attribute("class") for c in drawn.locator("rect").all()}
        fills = {c.evaluate(fill) for c in drawn.locator("rect").all()}
        assert len(fills) == len(classes), "colours differ"
        page.screenshot(path=str(tmp_path / "grids.png"), full_page=True)


def test_hostile_grids_are_not_drawn(look: Looked, tmp_path: Path) -> None:
    one = few_shot_runs.some_tasks(1)[0]
    huge = [[0] * 4000 for _ in range(40)]
    evil: Any = [["<img src=x onerror=window.pwned=1>"]]
    bad = [{"input": huge, "output": [[1]]}, {"input": evil, "output": [[1]]}, None, 7]
    good = {"input": [[1]], "output": [[2]]}
    inputs = {"demonstrations": [*bad, good], "tests": [evil, huge, [[3]]], "shown": "x"}
    one = one.model_copy(update={"inputs": inputs, "hidden": {"outputs": "x"}})
    run = few_shot_runs.edits_run(tmp_path / "run", [one], {one.example_id: [few_shot_runs.CHEAP]})
    told(run, one.example_id, [[evil, huge, [[1.5]], [[10]], [[]], [[1], [1, 2]]]])
    with viewing(run.path) as viewer:
        page = look.open(viewer.page(f"#/c/{run.manifest.id}-{one.example_id}-0"))
        page.get_by_role("heading", name="1 demonstration").wait_for()
        assert page.locator(".grids svg").count() == 3
        page.get_by_text("no grid could be read").wait_for()
        assert page.evaluate("window.pwned") is None
