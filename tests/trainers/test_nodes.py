"""Two machines train as one process does: processes of their own, with ranks of their own, that
meet over gloo on this one's loopback. One folder, one checkpoint; a lost machine is taken up again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from convbench.learn import launch
from convbench.learn.job import Job
from convbench.learn.launch import MASTER, RANK, NodeGroup, on_machines
from convbench.models.vllm import free_port
from convbench.store.run import Run
from tests.helpers.exact import ROOT, WORKER, apart, file_of
from tests.learn import tiny
from tests.support.later import later
from tests.support.processes import gone

torch = later("torch")
recording = later("tests.helpers.workers.gradients")

pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Nine conversations of a tiny policy."""
    folder = tmp_path_factory.mktemp("data")
    return tiny.judged_run(folder / "run", f"local:{tiny.save_model(folder / 'model')}")


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ddp", "zero3"])
def test_gradients_of_two_machines_are_those_of_one_process(
    name: str,
    run: Run,
    tmp_path: Path,
) -> None:
    from convbench import catalog
    from convbench.schema.recipe import LaunchSpec

    (tmp_path / "alone").mkdir()
    job = Job.from_file(file_of(tmp_path / "alone", run, **{"fit.batch_size": 4}))
    alone = recording.record(job, launch.load_trainer(launch.locate_trainer("swift")).data(job))
    file = file_of(tmp_path, run, **{"fit.batch_size": 2})
    spec = catalog.load_spec(LaunchSpec, "launch", name, sets={"accelerate.num_processes": 1})
    fit, port, machines = Job.from_file(file).recipe.fit, free_port(), []
    for rank in range(2):
        mine = on_machines(spec, NodeGroup(rank, 2, "127.0.0.1", port))
        parts = launch.launch_command(mine, WORKER, file, fit, 0)
        env = {**launch.worker_environment(mine, 0), "OMP_NUM_THREADS": "1"}
        env.pop(launch.GUARDED)
        machines.append(subprocess.Popen(parts, env=env, stdin=subprocess.DEVNULL))
    assert [one.wait(1200) for one in machines] == [0, 0]
    found = torch.load(tmp_path / recording.GRADIENTS)
    assert (found["processes"], found["deepspeed"]) == (2, name.startswith("zero"))
    for step in range(3):
        assert apart(found["steps"][step], alone["steps"][step]) < 1e-5, f"step {step}"
    assert apart(found["parameters"], alone["parameters"]) < 1e-5


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_command_on_two_machines_leaves_one_checkpoint_after_one_was_lost(
    run: Run,
    tmp_path: Path,
) -> None:
    """Killed after a step was kept: both are gone, and the same command on both goes on."""
    out = tmp_path / "out"
    words = ["train", "swift", "--run", str(run.path), "--out", str(out), "--launch", "ddp",
             "--nodes", "2"]  # fmt: skip
    sets = ("launch.num_processes=1", "fit.batch_size=2", "fit.accumulation=1", "fit.epochs=12",
            "fit.gradient_checkpointing=false")  # fmt: skip
    for pair in sets:
        words += ["--set", pair]

    def machines() -> list[subprocess.Popen[bytes]]:
        port = free_port()
        space = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                 MASTER: f"127.0.0.1:{port}"}  # fmt: skip
        return [
            subprocess.Popen(
                [sys.executable, "-m", "convbench", *words], env=space | {RANK: str(rank)},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            for rank in range(2)
        ]  # fmt: skip

    first = machines()
    ends = time.monotonic() + 600
    while not list(out.glob("checkpoint-*/trainer_state.json")) and time.monotonic() < ends:
        if any(one.poll() is not None for one in first):
            break
        time.sleep(0.05)
    trainers = [child.pid for one in first for child in psutil.Process(one.pid).children(True)]
    first[1].send_signal(signal.SIGKILL)
    for one in first:
        one.kill() if one is first[1] else one.terminate()
    said = [one.communicate(timeout=300)[0] for one in first]
    assert all(gone(pid, 60) for pid in trainers)  # until then they hold the folder
    assert not (out / "training.json").exists(), said
    again = machines()
    told = [one.communicate(timeout=900)[0].decode() for one in again]
    assert [one.returncode for one in again] == [0, 0], told
    summary: dict[str, Any] = json.loads((out / "training.json").read_text())
    assert summary["processes"] == 2
    assert [e["step"] for e in summary["log"] if "loss" in e][-1] == 60, "18 turns, 4 a step"
    names = {path.name for path in out.iterdir()}
    assert {"train.log", "train-1.log", "recipe.yaml", "model.safetensors"} <= names
