"""An experiment that nobody watches: what is missing is said first, what breaks is recorded, and
what was killed goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.errors import PreflightError, SpecError
from convbench.experiments.experiment import ExperimentResult
from convbench.experiments.run import StepProgress
from convbench.experiments.step import OutcomeRecord
from convbench.options.shared import CallOptions
from convbench.store import Run
from tests.helpers import stages
from tests.helpers.cards import nvidia_smi, simulate
from tests.helpers.cli import convbench, finish, records, start, until
from tests.helpers.typed import type_here
from tests.support.chat.plan import Plan
from tests.support.provider import Provider
from tests.support.serve import port_of_ours

QUIET = CallOptions(quiet=True)
WAIT_S = 600.0
"""A command that takes longer has hung."""
QUICK: dict[str, Any] = {
    "extends": "pocket", "title": "quick", "seeds": [0], "learners": ["base", "broken", "refit"],
    "count": 6, "samples": 2, "temperatures": [0.7], "max_tokens": 24,
    "recipe_sets": {"all": {"fit.max_steps": 1, "fit.save": "end"}},
}  # fmt: skip
BREAKS = """
def rows(recipe, runs):
    raise ArithmeticError("the moon is in the way")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment of two cells; one learner's trainer breaks."""
    monkeypatch.chdir(tmp_path)
    recipes = tmp_path / "specs" / "recipes"
    recipes.mkdir(parents=True)
    (tmp_path / "broken.py").write_text(BREAKS)
    (recipes / "broken.yaml").write_text("extends: refit\ntitle: broken\ntrainer: broken.py\n")
    (tmp_path / "quick.yaml").write_text(
        yaml.safe_dump({**QUICK, "modes": ["thinking", "standard"]})
    )
    return tmp_path


def quick(*sets: str, **more: Any) -> ExperimentResult:
    return stages.experiment("quick.yaml", run=Path("root"), set=sets, **more)


def states(found: ExperimentResult) -> dict[str, str]:
    return {one.address.removeprefix("pocket-"): one.state for one in found.outcomes}


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_killed_experiment_goes_on_and_a_broken_step_breaks_no_other(folder: Path) -> None:
    pytest.importorskip("torch")
    typed = ("experiment", "quick.yaml", "--run", "root", "-q", "--set", "modes=[thinking]")
    process = start(folder, *typed)
    cell = folder / "root" / "pocket-thinking-seed0"
    until((cell / "checkpoints" / "refit" / "recipe.yaml").exists, process, WAIT_S)
    os.kill(process.pid, signal.SIGKILL)
    finish(process)
    before = (cell / "conversations.jsonl").read_bytes()
    assert not (cell / "checkpoints" / "refit" / "training.json").exists()

    done = type_here(*typed)  # nothing kills this one
    assert done.code == 1
    assert (cell / "conversations.jsonl").read_bytes() == before
    said = " ".join((done.out + done.err).split())
    assert "4 of 6 done, 1 failed, 1 waiting" in said
    assert " ".join(done.err.split()).count("ArithmeticError: the moon is in the way") == 1
    assert (folder / "root" / "report" / "report.html").exists()
    assert "eval/broken: waits for pocket-thinking-seed0/train/broken" in said
    assert "next: convbench experiment quick.yaml --run root -q" in said
    assert "Traceback" not in done.err
    assert [child.path.name for child in Run.open(cell).child_runs()] == ["refit"]
    broke = [one for one in records(folder / "root" / "steps.jsonl") if one["trace"]]
    assert all("the moon is in the way" in one["trace"] for one in broke)
    assert len(broke) == 2

    again = quick("modes=[thinking]", only=("pocket-*/judge",))
    assert states(again) == {"thinking-seed0/judge": "done"}
    assert again.left == [f"pocket-thinking-seed0/{kind}/broken" for kind in ("train", "eval")]


def test_a_step_alone_waits_for_what_it_needs(folder: Path) -> None:
    found = quick(only=("*/train/refit",))
    assert {one.said for one in found.outcomes} == {
        (f"waits for pocket-{mode}-seed0/build",) for mode in ("thinking", "standard")
    }
    assert found.report is None
    assert len(found.left) == 10


def test_what_is_missing_is_told_at_once_and_each_fix_works(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    sets = ("tasks=[demo, cosql]", "judges=[gpt-4o, rules]", "count=400", "learners=[base, refit]",
            "modes=[thinking]", "model=scripted:policy")  # fmt: skip
    with pytest.raises(PreflightError) as caught:
        quick(*sets)
    assert not Path("root").exists()
    said = dict(line.split(": ", 1) for line in caught.value.missing)
    assert "OPENAI_API_KEY" in said["judge gpt-4o"]
    assert "--set per_task.cosql.sets.task.source.file=PATH" in said["cosql-thinking-seed0"]
    assert "--set per_task.demo.count=all" in said["demo-thinking-seed0"]
    both = ", ".join(f"{task}-thinking-seed0/train/refit" for task in ("demo", "cosql"))
    assert "weights are not recorded" in said[both]
    dry = convbench(folder, "experiment", "quick.yaml", "--dry-run",
                    *[word for pair in sets for word in ("--set", pair)])  # fmt: skip
    assert dry.code == 1
    assert dry.err.count("missing: ") == len(said)

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")
    with pytest.raises(PreflightError, match=r"hosted_vllm/one: found no server at \S+:9"):
        quick("judges=[hosted_vllm/one]", "learners=[base]")

    mended = quick(
        "tasks=[demo]", "judges=[gpt-4o, rules]", "count=400", "learners=[base, refit]",
        "modes=[thinking]", "model=local:pocket", "per_task.demo.count=all", dry_run=True,
    )  # fmt: skip
    assert mended.plan.missing == []
    assert mended.plan.total_estimate.usd > 0
    assert mended.plan.total_estimate.unpriced == set()


def test_devices_that_are_not_there_stand_in_the_one_list(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    two = nvidia_smi(folder, 2)
    simulate(monkeypatch, 2)
    sets = ("judges=[gpt-4o]", "learners=[refit]", "modes=[thinking]", "devices.trainer=[4]")
    words = [word for pair in sets for word in ("--set", pair)]
    dry = convbench(folder, "experiment", "quick.yaml", "--dry-run", *words, "--devices",
                    "policy=2", "--devices", "judge=[0, 3]", extra=two)  # fmt: skip
    assert dry.code == 1
    said = " ".join(dry.err.split())
    for role, number in (("policy", 2), ("judge", 3), ("trainer", 4)):
        assert f"missing: the experiment: devices: {role}: found {number}; " in said
        assert f"--devices {role}=[NUMBER]" in said
    assert said.count("missing: ") == 4, "each once, and the key beside them"
    assert "OPENAI_API_KEY" in said

    there = ("policy=2", "policy=1", "judge=[0, 1]", "trainer=[1]")
    sets = ("judges=[rules]", *sets[1:])
    planned = stages.experiment("quick.yaml", devices=there, dry_run=True, set=sets).plan
    assert planned.missing == []


@pytest.mark.exhaustive
def test_a_judge_that_goes_down_is_recorded_and_asked_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Down between two steps, still down when it is gone on with, up again; then a key that is
    none."""
    sets = ("tasks=[demo]", "judges=[hosted_vllm/judge]", "learners=[base]", "count=20",
            "model=scripted:policy")  # fmt: skip
    with port_of_ours() as port:
        with Provider(port=port) as provider:
            monkeypatch.setenv("HOSTED_VLLM_API_BASE", provider.api_base)

            def tell(progress: StepProgress) -> None:
                if progress.address.endswith("/judge"):  # either cell's may begin first
                    provider.stop()

            found = quick(*sets, tell=tell)
        assert [one.state for one in found.outcomes] == ["done", "failed"] * 2
        assert all("cannot connect to" in line for line in found.failure_lines)
        with pytest.raises(PreflightError, match=r"judge hosted_vllm/judge: .*found no server at"):
            quick(*sets)
        with Provider(port=port) as provider:
            again = quick(*sets)
            assert again.is_complete
            asked_before = provider.stats.calls
            assert quick(*sets).is_complete
            assert provider.stats.calls == asked_before, "what is done is not asked again"

    with Provider(Plan(api_keys=("sk-right",))) as provider:
        monkeypatch.setenv("OPENAI_API_BASE", provider.api_base)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
        sets = (*sets, "judges=[openai/gpt-4o-mini, rules]")
        found = stages.experiment("quick.yaml", run=Path("other"), concurrency=2, set=sets)
        assert [one.state for one in found.outcomes] == ["done", "failed"] * 2
        assert all("sk-wrong" not in line and "key" in line for line in found.failure_lines)
        assert provider.stats.calls <= 2 * 2, "one answer of each cell tells that no other comes"


def test_a_size_that_no_cell_reaches_is_said_before_it_is_built(folder: Path) -> None:
    sets = ("rows=[4, 999, null]", "modes=[thinking]", "learners=[refit]")
    (line,) = quick(*sets, dry_run=True).plan.missing
    assert "train/refit-999: rows: found at most" in line
    assert "--set quick.rows=" in line
    assert quick(*sets, "quick.rows=[8, null]", dry_run=True).plan.missing == []


def test_settings_of_a_task_and_of_a_cell(folder: Path) -> None:
    Path("quick.yaml").write_text(yaml.safe_dump({
        **QUICK, "modes": ["thinking", "standard"], "learners": ["base"], "seeds": [0, 1],
        "sets": {"task": {"sample": {"train": 0.5}}},
        "per_task": {"pocket": {"count": 4}},
        "per_cell": [{"match": {"mode": "standard", "seed": [1]}, "samples": 1}],
    }))  # fmt: skip
    found = quick(dry_run=True)
    amounts = {name: one.conversations for name, one in found.plan.amounts.items()}
    assert amounts == {
        "pocket-thinking-seed0": 8, "pocket-thinking-seed1": 8, "pocket-standard-seed0": 8,
        "pocket-standard-seed1": 4,
    }  # fmt: skip
    typed = quick("per_task.pocket.count=6", "task.sample.train=0.9", dry_run=True).plan
    assert typed.amounts["pocket-thinking-seed0"].conversations == 12
    noted = quick("per_task.pockett.count=6", dry_run=True)
    assert noted.notes == ["per_task.pockett: no cell is of this task"]


@pytest.mark.parametrize("asked", [{"only": ("pocket-thinking",)}, {"from": "nowhere"}])
def test_a_cell_that_is_none_is_refused(folder: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"found no such cell or step.*pocket-thinking-seed0"):
        quick(**asked)


def test_from_a_step_on(folder: Path) -> None:
    planned = quick(**{"from": "pocket-standard-seed0/train/refit"}, dry_run=True).plan
    assert [part.step.address for part in planned.steps] == [
        "pocket-standard-seed0/train/refit", "pocket-standard-seed0/eval/refit",
    ]  # fmt: skip


def test_a_torn_record_is_read_up_to_where_it_tore(tmp_path: Path) -> None:
    (tmp_path / "steps.jsonl").write_bytes(
        b'{"address":"a/build","mark":"m","state":"done","said":[]}\n{"address":"a/jud'
    )
    assert OutcomeRecord(tmp_path).is_complete("a/build", "m")
    assert len(records(tmp_path / "steps.jsonl")) == 1
