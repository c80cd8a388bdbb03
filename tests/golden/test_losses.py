"""What trainings compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.losses import losses
from tests.golden.record import Recorder
from tests.golden.rows import Log, run_with_references


@pytest.mark.exhaustive
def test_losses_gradients_and_parameters(
    golden: Recorder, golden_run: Path, tmp_path: Path
) -> None:
    log, referenced = Log(golden_run, {}), Log(run_with_references(tmp_path / "run"), {})
    found = dict(losses(log, referenced, tmp_path))
    golden.compare("losses.json", [found], digits=8, relative=1e-5)
