"""One process, accumulation, DDP, ZeRO-0, -2, -3, FSDP2: the same gradients and parameters."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from convbench import catalog
from convbench.errors import TrainError
from convbench.learn import launch
from convbench.learn.job import Job
from convbench.schema.recipe import LaunchSpec
from convbench.store.run import Run
from tests.helpers import stages, tiny
from tests.helpers.exact import WORKER, apart, file_of
from tests.support.exhaustive import first_of
from tests.support.later import later

torch = later("torch")
recording = later("tests.helpers.workers.gradients")

pytestmark = pytest.mark.timeout(1500)
"""The first ZeRO launch of a machine compiles a part of DeepSpeed, minutes on a slow one."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nine conversations: two processes of two rows take windows of 4, 4 and 1."""
    folder = tmp_path_factory.mktemp("data")
    model = tiny.save_model(folder / "model")
    return tiny.judged_run(folder / "run", f"local:{model}")


@pytest.fixture(scope="module")
def alone(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process does."""
    job = Job.from_file(file_of(tmp_path_factory.mktemp("alone"), run, **{"fit.batch_size": 4}))
    return recording.record(job, launch.load_trainer(launch.locate_trainer("swift")).data(job))


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(["ddp", "zero0", "zero2", "zero3", "fsdp"]))
def test_two_processes_do_what_one_does(
    name: str, run: Run, alone: dict[str, Any], tmp_path: Path
) -> None:
    """The shipped launch file; only zero2's offload, which takes AdamW alone, is off."""
    file = file_of(tmp_path, run, **{"fit.batch_size": 2})
    sets = {"accelerate.deepspeed_config.offload_optimizer_device": "none",
            "accelerate.deepspeed_config.offload_param_device": "none"}  # fmt: skip
    spec = catalog.load_spec(LaunchSpec, "launch", name, sets=sets if name == "zero2" else {})
    fit = Job.from_file(file).recipe.fit
    env = launch.worker_environment(spec, 0) | {"OMP_NUM_THREADS": "1"}
    launch.run_command(
        launch.launch_command(spec, WORKER, file, fit, 0), env, tmp_path / "log", fit
    )
    found = torch.load(tmp_path / recording.GRADIENTS)
    assert found["processes"] == 2
    assert found["deepspeed"] == name.startswith("zero")
    assert found["fsdp"] == (name == "fsdp"), "accelerate knows it on accelerators alone"
    for step in range(3):
        assert apart(found["steps"][step], alone["steps"][step]) < 1e-5, f"step {step}"
    assert apart(found["parameters"], alone["parameters"]) < 1e-5
    assert found["loss"] == pytest.approx(alone["loss"], rel=1e-5)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["zero3", "fsdp"])
def test_an_adapter_trained_on_shards_is_merged(run: Run, tmp_path: Path, name: str) -> None:
    """`train --launch NAME --set lora.r=4` with packed rows, through the command and the shipped
    file: what one process makes of padded ones."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    quick = ("fit.max_steps=2", "fit.accumulation=1", "fit.save=end", "fit.optimizer=sgd",
             "fit.gradient_checkpointing=false", "fit.learning_rate=0.5", "lora.r=4",
             "lora.dropout=0")  # fmt: skip
    made = {}
    for launched, more in ((name, ("fit.batch_size=2", "fit.packing=true")),
                           ("none", ("fit.batch_size=4",))):  # fmt: skip
        made[launched] = stages.train(
            "swift",
            run.path,
            launch=launched,
            out=tmp_path / launched,
            set=(*quick, *more),
            in_process=True,
        ).path
    path, alone = made[name], made["none"]
    assert path is not None
    summary = json.loads((path / "training.json").read_text())
    assert summary["processes"] == sum(summary["devices"].values()) == 2
    assert summary["seconds"] > 0
    by_one = json.loads((alone / "training.json").read_text())["gradient"]
    assert summary["gradient"].keys() == by_one.keys()
    for weighting in ("refit", "centred", "swift"):
        assert summary["gradient"][weighting] == pytest.approx(by_one[weighting], rel=1e-3)
    assert [entry["step"] for entry in summary["log"] if "loss" in entry] == [1, 2]
    assert "step 2/2" in (path / "train.log").read_text(), "the workers' last lines are kept"
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    base, one, several = (
        AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
        for folder in (run.manifest.cast["student"].model.removeprefix("local:"), alone, path)
    )
    parts = [dict(model.named_parameters()) for model in (several, one)]
    assert apart(*parts) < 1e-5
    with torch.no_grad():
        before = base(input_ids=ids).logits
        adapted = PeftModel.from_pretrained(base, path / "adapter")(input_ids=ids).logits
        merged = several(input_ids=ids).logits
    assert torch.allclose(adapted, merged, atol=1e-4)
    assert not torch.allclose(before, merged, atol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_pairs_train_on_shards_beside_a_base_on_shards(run: Run, tmp_path: Path) -> None:
    """All weights of StepDPO under ZeRO-3: what one process makes. A lock that a killed build left
    is gone."""
    from transformers import AutoModelForCausalLM

    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    lock = cache / "torch_extensions" / f"test-{os.getpid()}" / "some_op" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (1, 1))
    quick = ("fit.max_steps=2", "fit.accumulation=1", "fit.save=end", "fit.optimizer=sgd",
             "fit.gradient_checkpointing=false", "fit.learning_rate=0.5")  # fmt: skip
    made = []
    for launched, size in (("zero3", 2), ("none", 4)):
        done = stages.train(
            "step-dpo",
            run.path,
            launch=launched,
            out=tmp_path / launched,
            set=(*quick, f"fit.batch_size={size}"),
            in_process=True,
        )
        net = AutoModelForCausalLM.from_pretrained(str(done.path), dtype=torch.float32)
        made.append(dict(net.named_parameters()))
    assert apart(*made) < 1e-5
    assert not lock.exists()
    shutil.rmtree(lock.parents[1])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_why_workers_failed_reaches_the_user(run: Run, tmp_path: Path) -> None:
    """Weights that are broken: seen only by the workers, told in one line."""
    broken = tmp_path / "broken"
    shutil.copytree(run.manifest.cast["student"].model.removeprefix("local:"), broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(TrainError) as caught:
        stages.train("swift", run.path, model=str(broken), launch="ddp", out=tmp_path / "out")
    text = str(caught.value)
    assert "\n" not in text
    assert "header" in text, text
    assert str(tmp_path / "out" / "train.log") in text
