"""Several runs as one log, with real parts: built, judged, trained, evaluated on each, reported."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import convbench
from convbench.errors import TrainError, UsageError
from convbench.hub.send import publish_as_model
from convbench.learn.rows import Chats, Row, weighted_material
from convbench.learn.train import load_recipe
from convbench.models.weights_path import check_weights
from convbench.options.publish import PublishOptions
from convbench.options.shared import SpecOptions
from convbench.reports.document import mean_of
from convbench.store.run import Run
from tests.helpers import stages

SETS = (
    "launch=none", "data.unit=conversation", "fit.gradient_checkpointing=false", "fit.save=end",
    "fit.max_steps=2", "fit.precision=fp32", "lora=null",
)  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two judged runs of the embedded policy: questions, and wishes that a human knows."""
    root = tmp_path_factory.mktemp("runs")
    for task in ("pocket", "pocket-collaboration"):
        shape = {"max_tokens": 96, "samples": 2, "temperatures": (1.0,)}
        stages.build(task, tasks=8, model="local:pocket", run=root / task, **shape)
        stages.judge(root / task, "rules")
    return [Run.open(root / task) for task in ("pocket", "pocket-collaboration")]


@pytest.fixture(scope="module")
def trained(runs: list[Run]) -> Path:
    """A checkpoint of both, the second counted twice."""
    paths = tuple(run.path for run in runs)
    done = stages.train("refit", paths, in_process=True, set=(*SETS, "data.mix=[1,2]"))
    assert done.path is not None
    return done.path


def rows_of(*runs: Run) -> list[Row]:
    """The rows of a training on runs."""
    recipe = load_recipe("refit", SpecOptions(), {})
    material = weighted_material(recipe, runs, Chats(check_weights("pocket"), "loss"), None)
    return list(material.tokenise(material.items, Counter()))


def test_a_run_that_is_named_twice_is_refused(runs: list[Run]) -> None:
    with pytest.raises(TrainError, match=r"one run twice.*data.mix"):
        stages.train("refit", (runs[0].path, runs[0].path), dry_run=True)


@pytest.mark.exhaustive
def test_each_runs_rows_are_those_it_has_alone(runs: list[Run]) -> None:
    """Under its own protocol, whichever run is named first."""
    assert rows_of(runs[1], runs[0]) == [*rows_of(runs[1]), *rows_of(runs[0])]


def test_where_it_comes_from_stands_in_the_checkpoint_and_its_card(
    runs: list[Run], trained: Path, tmp_path: Path
) -> None:
    assert trained.parent.parent == runs[0].path
    told = json.loads((trained / "training.json").read_text())
    assert [part["run"] for part in told["runs"]] == [run.manifest.id for run in runs]
    assert [part["task"] for part in told["runs"]] == ["pocket", "pocket-collaboration"]
    assert [part["share"] for part in told["runs"]] == [1, 2]
    second = told["runs"][1]["conversations"]
    assert told["counts"]["rows"] == told["runs"][0]["conversations"] + 2 * second > 0
    done = publish_as_model(
        PublishOptions("me/both", checkpoint=trained, dry_run=True, folder=tmp_path / "card")
    )
    card = (done.folder / "README.md").read_text()
    assert f"log `{runs[1].manifest.id}`" in card
    assert "task pocket-collaboration, protocol collaboration, policy local:pocket" in card
    assert str(runs[1].path) not in (done.folder / "recipe.yaml").read_text()


def test_a_policy_is_measured_on_every_task(runs: list[Run], trained: Path) -> None:
    paths = tuple(run.path for run in runs)
    done = convbench.eval(str(trained), list(paths), quiet=True)
    assert [one.path.parent.parent for one in done] == list(paths)
    with pytest.raises(UsageError, match="found it twice"):
        convbench.eval(str(trained), [paths[0], paths[0]])
    document = stages.report(*paths).document
    (matrix,) = [t for part in document.parts for t in part.tables if t.name == "matrix"]
    assert [column.head for column in matrix.columns] == [
        "Policy", "pocket", "pocket-collaboration", "Mean", "First", "First two",
    ]  # fmt: skip
    by_name = {row.cells[0]: [mean_of(cell) for cell in row.cells[1:4]] for row in matrix.rows}
    assert set(by_name) == {"Base", "ReFit"}
    for first, second, mean in by_name.values():
        assert mean == pytest.approx((first + second) / 2)


@pytest.mark.exhaustive
def test_rounds_replay_earlier_logs_and_leave_a_curve(runs: list[Run]) -> None:
    """Half of the second round's rows come from the first round's log."""
    sets = (*SETS, "replay=0.5")
    done = stages.train_rounds("refit", runs[0].path, rounds=2, in_process=True, set=sets)
    second = done.result.rounds.rounds[1]
    told = json.loads((second.checkpoint / "training.json").read_text())
    assert [part["run"] for part in told["runs"]] == [second.run.manifest.id, runs[0].manifest.id]
    new, old = (part["conversations"] for part in told["runs"])
    assert told["runs"][1]["share"] == pytest.approx(min(1, new / old), abs=1e-3)
    result = stages.report(runs[0].path, plots=True)
    part = result.document.parts[0]
    (table,) = [table for table in part.tables if table.name == "rounds"]
    assert [row.cells[:2] for row in table.rows] == [("ReFit", 0), ("ReFit", 1), ("ReFit", 2)]
    # Both rounds' checkpoints are called `refit`: each policy's training is its own.
    trainings = {p.name: p.trainings[0] for p in result.settings[0].policies if p.round}
    own = [json.loads((one.checkpoint / "training.json").read_text())
           for one in done.result.rounds.rounds]  # fmt: skip
    assert [told["log"] for _, told in sorted(trainings.items())] == [told["log"] for told in own]
    assert any("by round" in picture.caption for picture in part.pictures)
