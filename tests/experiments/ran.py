"""An experiment that is written down here and run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from convbench.experiments.experiment import ExperimentResult, run_experiment
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, SpecOptions


def ran(folder: Path, spec: Mapping[str, Any], *sets: str, **more: Any) -> ExperimentResult:
    """Run a spec in a folder, again where it stopped."""
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    specs, calls = SpecOptions(sets=sets), CallOptions(quiet=True)
    return run_experiment(
        ExperimentOptions(str(file), folder / "r", specs=specs, calls=calls, **more)
    )
