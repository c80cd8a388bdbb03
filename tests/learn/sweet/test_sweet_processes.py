"""One process, DDP and ZeRO-2 and -3 train the same critic, and find the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.learn import launch
from convbench.learn.job import Job
from convbench.schema.recipe import LaunchSpec
from tests.helpers import tiny
from tests.helpers.collaboration import judged_run
from tests.helpers.exact import apart
from tests.support.later import later

torch = later("torch")
recording = later("tests.helpers.workers.gradients")
critic_steps = later("tests.helpers.workers.critic_steps")

WORKER = Path(__file__).parents[2] / "helpers" / "workers" / "critic_steps.py"
STEPS = 3
pytestmark = pytest.mark.timeout(1500)
"""The first ZeRO launch of a machine compiles a part of DeepSpeed, minutes on a slow one."""


def told(questions: int) -> list[tuple[str, list[str], float]]:
    """A pair a question; turns of many lengths, each conversation two turns long."""
    return [
        (f"q{i}", [f"which {word * (i % 5 + 1)}?", f"I WANT TO ANSWER: {'x' * (i % 7)}"], reward)
        for i in range(questions)
        for word, reward in (("colour ", 1.0), ("mood ", 0.0))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    model = tiny.save_model(folder / "model")
    judged_run(folder / "run", told(24), f"local:{model}")
    return folder


def file_of(folder: Path, name: str, size: int) -> Path:
    from convbench.store.run import Run

    sets: dict[str, Any] = {
        "trainer": "sweet_critic", "fit.batch_size": size, "fit.max_steps": STEPS,
        "args.held_out": 0.2, "fit.floor": 0.0, "fit.batch": None,
    }  # fmt: skip
    run = Run.open(folder / "run")
    return tiny.resolved(folder / name, "sweet", run, folder / "model", **sets)


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, Any]:
    return critic_steps.record(file_of(folder, "alone", 4))


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "zero2", "zero3"])
def test_two_processes_train_the_critic_that_one_does(
    name: str, folder: Path, alone: dict[str, Any]
) -> None:
    """The shipped launch file; only zero2's offload, which takes AdamW alone, is off."""
    file = file_of(folder, name, 2)
    sets = {"accelerate.deepspeed_config.offload_optimizer_device": "none",
            "accelerate.deepspeed_config.offload_param_device": "none"}  # fmt: skip
    spec = catalog.load_spec(LaunchSpec, "launch", name, sets=sets if name == "zero2" else {})
    fit = Job.from_file(file).recipe.fit
    env = launch.worker_environment(spec, 0) | {"OMP_NUM_THREADS": "1"}
    launch.run_command(
        launch.launch_command(spec, WORKER, file, fit, 0), env, file.with_name("log"), fit
    )
    found = torch.load(file.with_name(recording.GRADIENTS))
    assert (found["processes"], found["deepspeed"]) == (2, name != "ddp")
    assert found["pairs"] == alone["pairs"]
    for step in range(STEPS):
        assert apart(found["steps"][step], alone["steps"][step]) < 1e-5, f"step {step}"
    assert apart(found["parameters"], alone["parameters"]) < 1e-5
    assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    assert found["held_out"]["pairs"] > 0
    assert found["held_out"]["accuracy"] == alone["held_out"]["accuracy"]
    for talk, values in alone["held_out"]["advantages"].items():
        assert found["held_out"]["advantages"][talk] == pytest.approx(values, abs=2e-4)
        assert any(values)
