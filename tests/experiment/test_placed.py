"""Trainings of an experiment on simulated cards: nothing is begun before each of them fits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from convbench.errors import PreflightError
from convbench.experiment.cells import plan_steps
from convbench.experiment.experiment import load_specs, run_experiment
from convbench.experiment.scheduler import tasks_of
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, SpecOptions
from tests.bench.bench import ROOT
from tests.experiment.ran import ran
from tests.learn.shapes import QWEN_7B, write_model


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


@pytest.mark.parametrize(("cards", "host"), [("1x80", 256), ("8x80", 1000)])
@pytest.mark.parametrize(
    ("name", "model"),
    [("paper", "llama"), ("sweet-backend", "llama"), ("sweet-frontend", "llama"),
     ("seal", "qwen"), ("seal-pretraining", "qwen")],
)  # fmt: skip
def test_the_papers_experiments_fit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str, cards: str, host: int
) -> None:
    """Each fits one machine of eight cards, and all but SWEET's one card; the page on what fits has
    the same figures."""
    simulate(monkeypatch, cards, host)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    write_model(folder / "qwen", {**QWEN_7B, "max_position_embeddings": 131_072})
    specs = SpecOptions(sets=(f"model=vllm:{folder / model}",))
    options = ExperimentOptions(
        name, folder / "r", specs=specs, calls=CallOptions(quiet=True), dry_run=True
    )
    plan = run_experiment(options).plan
    unfit = [
        line for line in plan.missing if "fits" in line or "GB" in line or "has devices" in line
    ]
    assert bool(unfit) == (name.startswith("sweet") and cards == "1x80"), plan.missing
    page = (ROOT / "docs" / "howto" / "scale.md").read_text()
    for line in () if unfit else plan.placements.values():
        where, size = line.split(": ")
        card, memory = re.findall(r"([\d.,]+) GB", size)
        assert any(
            all(f" {part} " in row for part in (name, cards, card, memory)) and where in row
            for row in page.splitlines()
        ), line
