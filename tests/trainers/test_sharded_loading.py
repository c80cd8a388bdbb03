"""ZeRO-3 loads in shards: no process holds policy and reference whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convbench import catalog
from convbench.learn import launch
from convbench.learn.job import Job
from convbench.schema.recipe import LaunchSpec
from convbench.store.run import Run
from tests.helpers import tiny
from tests.helpers.exact import apart
from tests.support.later import later

recording = later("tests.helpers.workers.gradients")
torch = later("torch")
transformers = later("transformers")

WORKER = Path(__file__).with_name("load_memory.py")
WEIGHTS = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 4}
pytestmark = pytest.mark.timeout(1500)


def loaded(folder: Path, run: Run, model: Path, how: str) -> list[dict[str, float]]:
    """What each of two processes tells after it has loaded."""
    file = tiny.resolved(folder, "dpo", run, model)
    spec = catalog.load_spec(LaunchSpec, "launch", "zero3")
    fit = Job.from_file(file).recipe.fit
    freed = {
        "MALLOC_MMAP_THRESHOLD_": "65536"
    }  # what is freed goes back at once, and counts no more
    env = launch.worker_environment(spec, 0) | {"OMP_NUM_THREADS": "1", "LOADED": how, **freed}
    command = launch.launch_command(spec, WORKER, file, fit, 0)
    launch.run_command(command, env, file.with_name("log"), fit)
    return [json.loads(file.with_name(f"memory-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize(
    ("launched", "recipe"), [("zero3", "ppo"), ("zero3", "swift-anchored"), ("fsdp", "ppo")]
)
def test_what_is_computed_before_the_training_is_that_of_one_process(
    tmp_path: Path, launched: str, recipe: str
) -> None:
    """log pi_0 by gathered weights, and an anchor's base, which each process has whole."""
    model = tiny.save_model(tmp_path / "model")
    run = tiny.judged_run(tmp_path / "run", f"local:{model}")
    spec = catalog.load_spec(LaunchSpec, "launch", launched)
    file, own = (
        tiny.resolved(tmp_path / name, recipe, run, model, **{"fit.batch_size": size})
        for name, size in (("two", 2), ("one", 4))
    )
    job = Job.from_file(own)
    alone = recording.record(job, launch.load_trainer(launch.locate_trainer("swift")).data(job))
    env = launch.worker_environment(spec, 0) | {"OMP_NUM_THREADS": "1"}
    fit = Job.from_file(file).recipe.fit
    command = launch.launch_command(
        spec, WORKER.parents[1] / "helpers" / "workers" / "gradients.py", file, fit, 0
    )
    launch.run_command(command, env, file.with_name("log"), fit)
    found = torch.load(file.with_name(recording.GRADIENTS))
    assert (found["processes"], found["deepspeed"]) == (2, launched == "zero3")
    for step, gradients in enumerate(alone["steps"]):
        assert apart(found["steps"][step], gradients) < 1e-5, f"step {step}"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_two_processes_load_half_each(tmp_path: Path) -> None:
    model = tiny.save_model(tmp_path / "model", layers=16, **WEIGHTS)
    weights = 2 * (model / "model.safetensors").stat().st_size  # policy and reference, in float32
    stored = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    stored.save_pretrained(model)  # as checkpoints are
    run = tiny.judged_run(tmp_path / "run", f"local:{model}")
    shards, whole = (loaded(tmp_path / how, run, model, how) for how in ("shards", "whole"))
    for each in (*shards, *whole):  # shown where this fails
        print({name: round(value / 1e6, 1) for name, value in each.items()}, weights / 1e6)
    for each in whole:
        assert each["held"] == pytest.approx(weights, rel=0.01)
        assert each["after"] - each["before"] > 0.9 * weights or each["peak"] > weights
    for each in shards:
        assert each["held"] == pytest.approx(weights / 2, rel=0.01)
        assert each["after"] - each["before"] < 0.65 * weights
        assert each["sum"] == pytest.approx(whole[0]["sum"], rel=1e-6), "gathered, they are whole"
    assert shards[1]["peak"] < whole[1]["peak"] - 0.3 * weights
