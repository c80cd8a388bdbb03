"""`train --rounds`: a round that was killed goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from convbench.store.checkpoint import Checkpoint
from tests.helpers import stages

SETS = ("launch=none", "fit.epochs=6", "fit.batch=16", "fit.batch_size=16", "fit.precision=fp32")


@pytest.mark.exhaustive
def test_train_ppo_in_rounds_killed_in_the_second_goes_on(tmp_path: Path) -> None:
    """Killed by SIGKILL once an epoch of the second round is saved; the first is not done again."""
    run = stages.build(
        "pocket", model="local:pocket", tasks=8, samples=3, max_tokens=24, run=tmp_path / "run"
    )
    stages.judge(run.path, "rules")
    command = [sys.executable, "-m", "convbench", "train", "ppo", "--rounds", "2", "--quiet"]
    command += ["--run", str(run.path)]
    command += [word for value in SETS for word in ("--set", value)]
    first = Checkpoint(run.checkpoints_folder / "ppo")
    second = Checkpoint(run.path / "rounds" / "ppo" / "2" / "checkpoints" / "ppo")
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.monotonic() + 200
        while not list(second.folder.glob("checkpoint-*/trainer_state.json")):
            assert time.monotonic() < until
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    assert not second.is_finished
    seconds, begun = first.training["seconds"], (second.folder / "recipe.yaml").read_text()
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert first.training["seconds"] == seconds
    assert (second.folder / "recipe.yaml").read_text() == begun
    assert second.training["base"] == str(first.folder.resolve())
    steps = [entry["step"] for entry in second.training["log"] if "loss" in entry]
    assert steps == sorted(set(steps))
    assert steps[-1] == second.training["steps"]
    assert sorted(child.path.name for child in run.child_runs()) == ["ppo-round-1", "ppo-round-2"]
