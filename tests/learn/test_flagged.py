"""Flagged conversations through selection, training and export: dropped by default, and counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench.errors import TrainError
from convbench.learn.export import export_run
from convbench.learn.select import select
from convbench.schema.recipe import Data
from convbench.store.run import Run
from tests.helpers import stages, tiny

FLAGS: dict[int, tuple[str, ...]] = {
    1: ("teacher:leak",),
    3: ("student:words", "student:no-question", "student:repeats"),
    4: ("teacher:leak", "teacher:role"),
}
"""What the checks found in which sample; the policy's own lapses of form do not count."""


def run_of(path: Path, flags: dict[int, tuple[str, ...]] = FLAGS) -> Run:
    """Two questions with six samples, the later the better."""
    judged = [
        (talk, [tiny.verdict(talk, sample / 10)])
        for name in ("q0", "q1")
        for sample in range(6)
        for talk in [tiny.conversation(name, sample, ["a", "b"], flags=flags.get(sample, ()))]
    ]
    return tiny.make_run(path, judged, [tiny.example("q0"), tiny.example("q1")])


def test_flagged_conversations_are_dropped_by_default_and_counted(tmp_path: Path) -> None:
    found = select(run_of(tmp_path / "run"), Data())
    assert [item.conversation.sample for item in found.logged] == [0, 2, 3, 5] * 2
    assert found.skipped == {"flagged": 4}
    assert found.flagged.record() == {
        "rule": "drop", "conversations": 4, "findings": {"teacher:leak": 4, "teacher:role": 2},
    }  # fmt: skip
    assert any("4 conversations dropped" in line for line in found.describe("reward"))


def test_they_can_be_kept(tmp_path: Path) -> None:
    found = select(run_of(tmp_path / "run"), Data(flagged="keep"))
    assert [item.reward for item in found.logged] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5] * 2
    assert (found.skipped, found.flagged.conversations) == ({}, 4)


def test_without_flags_nothing_is_said(tmp_path: Path) -> None:
    found = select(run_of(tmp_path / "run", {}), Data())
    assert not any("flagged" in line for line in found.describe("reward"))


def test_where_all_are_flagged_the_error_says_how_to_go_on(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", dict.fromkeys(range(6), ("teacher:leak",)))
    with pytest.raises(TrainError, match=r"\(12 flagged\); --set data.flagged=keep"):
        select(run, Data())


def test_training_says_and_records_how_many(tmp_path: Path) -> None:
    run, model = run_of(tmp_path / "run"), tiny.save_model(tmp_path / "model")
    sets = ("fit.max_steps=1", "fit.probe=false")
    dry = stages.train("refit", run.path, model=str(model), dry_run=True).preview
    assert any("flagged by fidelity checks: 4 conversations dropped" in line for line in dry)
    done = stages.train("refit", run.path, model=str(model), set=sets, in_process=True)
    assert any("4 conversations dropped (teacher:leak 4" in note for note in done.notes)
    assert done.path is not None
    summary = json.loads((done.path / "training.json").read_text())
    assert summary["flagged"]["conversations"] == summary["skipped"]["flagged"] == 4


@pytest.mark.parametrize("recipe", [None, "swift"])
def test_export_leaves_them_out_and_says_so(tmp_path: Path, recipe: str | None) -> None:
    run = run_of(tmp_path / "run")
    done = export_run(run, "trl", tmp_path / "a", recipe=recipe)
    assert done.flagged == 4
    assert done.rows["train"] + done.left_out == 8
    kept = export_run(run, "trl", tmp_path / "b", recipe=recipe, flagged="keep")
    assert (kept.flagged, kept.rows["train"] + kept.left_out) == (0, 12)
