"""Experiments that belong together, and what every step of one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.errors import SpecError
from convbench.experiments.cells import build_options, plan_steps, train_options, without_address
from convbench.experiments.experiment import load_specs
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, SpecOptions
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cli import convbench

PLUGIN = """
from convbench.judges.rules import score as rules


def rows(*, seed, count):
    from convbench.tasks.demo import rows as demo
    return list(demo(seed=seed))[:count]


def score(conversation, example, protocol, mode):
    return rules(conversation, example, protocol, mode=mode)
"""
TASK = """extends: demo
title: mine
source: {rows: "helpers:rows", args: {count: 5}}
sample: {train: 0.6}
"""
JUDGE = 'extends: rules\ntitle: mine\nfunction: "helpers:score"\n'
TABLE: dict[str, Any] = {
    "title": "table", "tasks": ["mine"], "modes": ["standard"], "model": "scripted:policy",
    "judges": ["mine"], "learners": ["base"], "samples": 1, "temperatures": [0.5],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table, and a second one that adds a judge to its cell and a cell of its own;
    task and judge are functions of a plugin."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "specs/tasks/mine.yaml": TASK, "specs/judges/mine.yaml": JUDGE, "own/helpers.py": PLUGIN,
        "specs/experiments/more.yaml": yaml.safe_dump(
            {**TABLE, "modes": ["standard", "thinking"], "judges": ["mine", "rules"]}),
        "table.yaml": yaml.safe_dump({**TABLE, "also": ["more"]}),
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_plugin_serves_every_step_and_what_two_tables_share_is_done_once(folder: Path) -> None:
    typed = ("experiment", "table.yaml", "--run", "root", "--plugin", "own/helpers.py")
    done = convbench(folder, *typed, "--timeout", "7", "--quiet")
    assert done.code == 0, done.err
    assert "5 of 5 done, 0 failed, 0 waiting" in " ".join(done.out.split())
    assert "mine-standard" not in done.err, "no progress where it is quiet"
    judges = {
        path.name: {verdict.judge for verdict in Run.open(path).verdicts()}
        for path in (folder / "root").glob("mine-*")
    }
    both = {"mine", "rules"}
    assert judges == {"mine-standard-seed0": both, "mine-thinking-seed0": both}
    for path in (folder / "root").glob("mine-*"):  # the second judge trains nothing
        run = Run.open(path)
        split = {talk.conversation_id: run.questions[talk.example_id].split
                 for talk in run.conversations()}  # fmt: skip
        scored = [each.conversation_id for each in run.verdicts() if each.judge == "rules"]
        assert {split[name] for name in scored} == {"test"}
    again = convbench(
        folder, "experiment", "table.yaml", "--run", "root", "--plugin", "own/helpers.py"
    )
    assert again.code == 0
    assert "[" not in again.err, "nothing is begun again"
    without = convbench(folder, "experiment", "table.yaml", "--run", "other", "--dry-run")
    assert without.code == 1
    assert "missing: judge mine: " in without.err


def test_what_is_set_holds_for_the_tables_that_are_added_but_for_their_cells(folder: Path) -> None:
    sets = ("count=3", "modes=[thinking]", "per_task.mine.samples=2", "task.sample.train=0.7")
    first, second = load_specs(ExperimentOptions("table.yaml", specs=SpecOptions(sets=sets)))
    assert (first.modes, second.modes) == (("thinking",), ("standard", "thinking"))
    named = ExperimentOptions(
        "table.yaml", specs=SpecOptions(sets=(*sets, "more.modes=[thinking]"))
    )
    assert load_specs(named)[1].modes == ("thinking",)
    fields = SpecOptions(sets=("judges=[rules]", "judges.title=mine", "size.rows=[5]"))
    paper = load_specs(ExperimentOptions("paper", specs=fields))
    assert [one.judges for one in paper] == [("rules",)] * 5
    assert [one.title for one in paper].count("mine") == 1
    with pytest.raises(SpecError, match="mode: unknown key"):
        load_specs(ExperimentOptions("table.yaml", specs=SpecOptions(sets=("mode=thinking",))))
    for spec in (first, second):
        own = plan_steps(spec)[0].spec
        assert (own.count, own.samples, own.sets) == (3, 2, {"task.sample.train": 0.7})


def test_every_step_gets_what_is_said_of_calls(folder: Path) -> None:
    calls = CallOptions("http://127.0.0.1:1/v1", timeout=7, quiet=True)
    options = ExperimentOptions("table.yaml", calls=calls)
    part = plan_steps(load_specs(options)[0])[0]
    asked = build_options(part.step.cell, part.spec, None, options)
    trained = train_options(part.step, part.spec, Path("run"), without_address(options))
    for one in (asked.calls, trained.calls):
        assert (one.timeout, one.quiet) == (7, True)
    assert (asked.calls.api_base, trained.calls.api_base) == (calls.api_base, None)


def test_a_run_that_was_built_otherwise_is_no_cell_of_this(folder: Path) -> None:
    typed = ("experiment", "table.yaml", "--run", "root", "--plugin", "own/helpers.py", "-q")
    assert convbench(folder, *typed, "--only", "*/build", "--set", "also=[]").code == 0
    changed = stages.experiment(
        "table.yaml",
        run=Path("root"),
        dry_run=True,
        set=("samples=2", "also=[]"),
        plugin=(Path("own/helpers.py"),),
    )
    (line,) = changed.plan.missing
    assert "built with other settings" in line
    assert "--run DIR" in line
