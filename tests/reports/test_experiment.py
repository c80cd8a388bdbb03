"""Whole tables from one file: what the shipped ones ask for, and a run that stops and goes on."""

import json

import pytest

from convbench import catalog
from convbench.errors import BudgetError
from convbench.experiments.cells import iter_cells, plan_steps
from convbench.reports.policies import NAMES
from convbench.reports.published import ALSO, paper_tables
from convbench.schema.experiment import ExperimentSpec, recipe_of
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.report_tables import table_of
from tests.support.provider import Plan, Provider


def shipped(name):
    return catalog.load_spec(ExperimentSpec, "experiments", name)


def settings(spec):
    """(task, mode, protocol, turns) of every run of an experiment."""
    return {(c.task, c.mode, c.protocol or "reasoning", c.turns or 3) for c in iter_cells(spec)}


def printed(*numbers):
    tables = [table for table in paper_tables() if table.number in numbers]
    return {(t.task, t.mode, t.protocol, t.turns) for t in tables}, tables


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        (("paper", "paper-clarifying"), range(1, 15)),
        (("length",), range(15, 19)),
        (("judges",), (19,)),
        (("size",), (20, 21)),
        (("size-trajectories",), (20, 21)),
        (("paper-clarifying-as-printed",), (13, 14)),
        (("length-as-printed",), range(15, 19)),
        (("judges-as-printed",), (19,)),
        (("size-as-printed",), (20, 21)),
    ],
)
def test_shipped_experiments_are_the_papers_tables(names, numbers):
    specs = [shipped(name) for name in names]
    asked, tables = printed(*numbers)
    assert {
        (ALSO.get(task, task), *rest) for task, *rest in set().union(*map(settings, specs))
    } == (asked)
    for spec in specs:
        learners = {NAMES[recipe_of(name)] for name in spec.learners}
        assert not any(table.by_size for table in tables) or {1000, 2000} <= set(spec.rows)
        assert all(table.by_size or set(table.methods) <= learners for table in tables)
        assert spec.judges[0].rpartition("@")[2] == "gpt-4o"


def test_the_paper_is_one_experiment():
    assert shipped("paper").also == ("paper-clarifying", "length", "judges", "size")


def test_as_printed_is_the_paper_by_other_rules():
    """The judge's prompt as printed, flagged conversations too, and both sets of its "SciQA"."""
    whole = shipped("paper-as-printed")
    assert whole.also == tuple(f"{name}-as-printed" for name in shipped("paper").also)
    for name in ("paper", *shipped("paper").also):
        clean, printed = shipped(name), shipped(f"{name}-as-printed")
        assert printed.max_tokens == 128
        assert printed.sets == {"protocol.framing": "llama-2"}
        assert printed.judges == tuple(f"rubric-as-printed@{judge}" for judge in clean.judges)
        assert printed.learners == clean.learners
        for learner in printed.learners:
            assert printed.sets_of(learner) == {**clean.sets_of(learner), "data.flagged": "keep"}
    assert {"sciq", "sciqa"} < set(shipped("paper-clarifying-as-printed").tasks)


def test_both_readings_of_the_sample_size_are_one_experiment():
    spec = shipped("size-trajectories")
    assert spec.sets_of("refit")["data.unit"] == "conversation"
    assert spec.sets_of("refit:turns")["data.unit"] == "turn"
    train = round(0.8 * spec.count) * spec.samples
    assert train - 3 < max(spec.rows) <= train, "834 is the fewest questions with 2000 to train on"
    assert round(0.8 * (spec.count - 1)) * spec.samples < max(spec.rows)


def test_every_step_is_listed_in_order():
    spec = shipped("size").model_copy(update={"modes": ("thinking",)})
    steps = [part.step.name for part in plan_steps(spec)]
    assert steps == [
        "build", "judge", "train refit-1000", "eval refit-1000", "train refit-2000",
        "eval refit-2000", "train refit", "eval refit",
    ]  # fmt: skip
    assert len({cell.name for cell in iter_cells(shipped("paper"))}) == 12
    assert len(plan_steps(shipped("paper"))) == 12 * (2 + 2 * 6)


SMALL = """extends: pocket
title: small
seeds: [0]
learners: [base, refit]
count: 12
samples: 2
temperatures: [0.7]
max_tokens: 24
recipe_sets: {all: {fit.max_steps: 1, fit.probe: false}}
"""


def experiment(folder, *sets, **more):
    return stages.experiment(str(folder / "small.yaml"), run=folder / "runs", set=sets, **more)


@pytest.mark.exhaustive
def test_an_experiment_stops_and_goes_on_and_keeps_what_is_done(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "small.yaml").write_text(SMALL)
    with pytest.raises(BudgetError):
        experiment(tmp_path, budget_tokens=1500, concurrency=1)
    run = Run.open(tmp_path / "runs" / "pocket-thinking-seed0")
    before = run.conversations_file.read_bytes()
    assert 0 < before.count(b"\n") < 24
    # The address is the starting policy's alone: a checkpoint is no name on that server.
    with Provider(Plan()) as provider:
        result = experiment(tmp_path, api_base=provider.api_base)
        assert provider.stats.calls == 0
    assert run.conversations_file.read_bytes().startswith(before)
    (child,) = run.child_runs()
    assert child.manifest.cast["assistant"].model.startswith("local:")
    assert [row[0].text for row in table_of(result.report, "Results", 1).rows] == [
        "ReFit", "Base",
    ]  # fmt: skip
    files = [run.conversations_file, run.verdicts_file, child.conversations_file]
    files.append(run.checkpoints_folder / "refit" / "training.json")
    kept = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    training = json.loads(kept[-1][0])
    assert training["recipe"] == "refit"
    again = experiment(tmp_path)
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in files] == kept
    assert again.report.document == result.report.document


def test_a_dry_run_writes_nothing(tmp_path):
    (tmp_path / "small.yaml").write_text(SMALL)
    planned = experiment(tmp_path, "count=5", "seeds=[0,1]", dry_run=True).plan
    kinds = [part.step.kind for part in planned.steps]
    assert kinds == ["build", "judge", "train", "eval"] * 2
    amount = planned.amounts["pocket-thinking-seed0"]
    assert (amount.conversations, amount.verdicts) == (10 + 2, 10 + 2)
    assert amount.steps == 1
    assert planned.total_estimate.calls == 2 * 3 * (10 + 2)
    assert not planned.missing
    assert not (tmp_path / "runs").exists()
