"""What trainings compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.losses import losses
from tests.golden.record import Recorder
from tests.golden.rows import Log, run_with_references

PPO_THIRD = 15.641171


@pytest.mark.exhaustive
def test_losses_gradients_and_parameters(
    golden: Recorder, golden_run: Path, tmp_path: Path
) -> None:
    log, referenced = Log(golden_run, {}), Log(run_with_references(tmp_path / "run"), {})
    found = dict(losses(log, referenced, tmp_path))
    # In ppo's third step pi and pi_0 are far apart: moving every weight by a unit in its last place
    # moves this norm by 4e-5, and so do a machine's kernels. All other numbers are known to 1e-5.
    third = found["ppo"]["gradient"][2]
    assert third == pytest.approx(PPO_THIRD, rel=5e-5)
    found["ppo"]["gradient"][2] = PPO_THIRD
    golden.compare("losses.json", [found], digits=8, relative=1e-5)
