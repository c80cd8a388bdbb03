"""An experiment that is written down here and run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from convbench.experiments.experiment import ExperimentResult
from tests.helpers import stages


def ran(folder: Path, spec: Mapping[str, Any], *sets: str, **more: Any) -> ExperimentResult:
    """Run a spec in a folder, again where it stopped."""
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    return stages.experiment(str(file), run=folder / "r", set=sets, **more)
