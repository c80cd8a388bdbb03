"""Trainings of an experiment on simulated cards: nothing is begun before each of them fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from convbench.errors import PreflightError
from convbench.experiments.cells import plan_steps
from convbench.experiments.experiment import load_specs
from convbench.experiments.scheduler import tasks_of
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions
from tests.experiments.ran import ran
from tests.helpers.shapes import write_model
from tests.helpers.vllm import python

__all__ = ["python"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an 8B model's config.json and tokenizer."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    write_model(tmp_path / "llama")
    return tmp_path


def spec(folder: Path, *learners: str) -> dict[str, object]:
    return {
        "title": "learners of a large model",
        "tasks": ["demo"],
        "modes": ["thinking"],
        "model": f"local:{folder / 'llama'}",
        "judges": ["rules"],
        "learners": ["base", *learners],
        "count": 8,
        "max_tokens": 96,
    }


def simulate(monkeypatch: pytest.MonkeyPatch, cards: str, host: int) -> None:
    monkeypatch.setenv("CONVBENCH_SIMULATED_DEVICES", cards)
    monkeypatch.setenv("CONVBENCH_SIMULATED_HOST", str(host))


def test_a_dry_run_shows_where_each_training_is_placed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, "1x80", 256)
    plan = ran(folder, spec(folder, "swift", "dpo"), dry_run=True).plan
    assert plan.missing == []
    assert set(plan.placements) == {
        f"demo-thinking-seed0/train/{name}" for name in ("swift", "dpo")
    }
    for line in plan.placements.values():
        assert line.startswith("zero2 on 1 card, optimiser in host memory")
    assert not any("asks for 2 accelerators" in note for note in plan.notes)
    assert plan.total_estimate.steps > 0


def test_nothing_is_begun_where_a_training_does_not_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(monkeypatch, "1x80", 64)
    learners = spec(folder, "swift", "dpo")
    (first, second) = ran(folder, learners, dry_run=True).plan.missing
    for line in (first, second):
        assert "nothing fits; the least is zero2 on 1 card" in line
        assert line.endswith("--set recipe_sets.all.lora.r=16")
    with pytest.raises(PreflightError):
        ran(folder, learners)
    assert not (folder / "r").exists()
    adapters = ran(folder, learners, "recipe_sets.all.lora.r=16", dry_run=True).plan
    assert adapters.missing == []
    assert all(line.startswith("none on 1 card") for line in adapters.placements.values())


def test_without_cards_only_what_is_certain_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONVBENCH_SIMULATED_DEVICES", raising=False)
    for host, missing in ((50, 1), (70, 0)):
        monkeypatch.setenv("CONVBENCH_SIMULATED_HOST", str(host))
        plan = ran(folder, spec(folder, "swift"), dry_run=True).plan
        assert len(plan.missing) == missing


def test_a_training_claims_the_cards_that_it_needs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fits a card may have any of them, one of two processes one of four pairs, one that
    is spread over all has all."""
    simulate(monkeypatch, "8x80", 1000)
    ran(folder, spec(folder, "sweet", "swift"), dry_run=True)
    options = ExperimentOptions(str(folder / "experiment.yaml"), calls=CallOptions(quiet=True))

    def claims(*sets: str) -> list[int]:
        from dataclasses import replace

        told = replace(options, specs=replace(options.specs, sets=sets))
        plan = [part for part in plan_steps(load_specs(told)[0]) if part.step.kind == "train"]
        tasks, _ = tasks_of(plan, replace(options))
        return [len(task.placements) for task in tasks]

    assert claims() == [1, 4]
    assert claims("recipe_sets.all.lora.r=16", "recipe_sets.all.launch=none") == [8, 8]


def adapting(folder: Path, inner: dict[str, object], model: str = "llama") -> dict[str, object]:
    """Return an experiment of self-edits whose judge adapts with other settings."""
    (folder / "adapts.yaml").write_text(
        yaml.safe_dump({"title": "adapts", "extends": "adaptation", "args": {"inner": inner}})
    )
    cells = {"tasks": ["pocket-notes"], "protocols": ["self-edit"], "modes": ["standard"]}
    judge = {"judges": [str(folder / "adapts.yaml")], "learners": ["base"]}
    return {**spec(folder), **cells, **judge, "model": f"local:{folder / model}"}


@pytest.mark.parametrize(
    ("inner", "host", "line"),
    [
        ({}, 256, "takes at most 32 GB of 80 a card"),
        ({"tuning": "full"}, 256, "takes at most 53 GB of 80 a card, and 161 GB of host memory"),
        ({"tuning": "full"}, 128, "takes 161 GB of host memory where the card has no room"),
        ({"tuning": "full", "offload": "none"}, 256, "takes at least 177 GB of one card"),
    ],
)
def test_an_adaptation_that_no_card_holds_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, inner: dict[str, object], host: int, line: str
) -> None:
    simulate(monkeypatch, "1x80", host)
    plan = ran(folder, adapting(folder, inner), dry_run=True).plan
    lines = plan.notes if "at most" in line else plan.missing
    assert [each for each in lines if line in each], (plan.notes, plan.missing)
    assert bool(plan.missing) == ("at most" not in line)


def clarifying(folder: Path, model: str, teacher: str) -> dict[str, object]:
    """A policy and another teacher, both of the 8B shape, and the evaluation of a checkpoint."""
    return {
        **spec(folder, "swift"),
        "tasks": ["pocket-clarify"],
        "protocols": ["clarifying"],
        "model": model,
        "teacher": teacher,
        "recipe_sets": {"all": {"lora.r": 16}},
    }


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("engine", ["local", "vllm"])
def test_engines_that_run_at_once_need_devices_before_anything_is_paid(
    folder: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("CONVBENCH_VLLM_PYTHON", str(folder / "python"))
    write_model(folder / "teacher")
    policy, teacher = f"{engine}:{folder / 'llama'}", f"vllm:{folder / 'teacher'}"
    settings = clarifying(folder, policy, teacher)
    simulate(monkeypatch, "2x80", 1000)
    cell = "pocket-clarify-clarifying-thinking-seed0"
    missing = [line for line in ran(folder, settings, dry_run=True).plan.missing if "once" in line]
    assert [line.partition(": ")[0] for line in missing] == [cell, f"{cell}/eval/swift"]
    assert f"{policy} and {teacher} run at once on this machine" in missing[0]
    assert f"the checkpoint and {teacher} run at once on this machine" in missing[1]
    with pytest.raises(PreflightError):
        ran(folder, settings)
    assert not (folder / "r").exists()
    assert ran(folder, settings, "devices={policy: 0, teacher: 1}", dry_run=True).plan.missing == []
