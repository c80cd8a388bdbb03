"""Compare gradients, and the rows that they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convbench.learn.job import Job
from convbench.learn.rows import TrainingRow, training_rows
from convbench.learn.weights import Weighted
from convbench.store.run import Run
from tests.helpers import tiny

Gradients = dict[str, Any]


def rows_of(job: Job, weighted: Weighted) -> tuple[TrainingRow, ...]:
    """The rows the trainer gets."""
    return training_rows(weighted, job.chat).rows


def apart(found: Gradients, wanted: Gradients) -> float:
    """Largest difference of any parameter's gradient, over that parameter's largest entry."""
    assert found.keys() == wanted.keys()
    return max(
        ((found[name] - wanted[name]).abs().max() / wanted[name].abs().max()).item()
        for name in wanted
    )


ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "helpers" / "workers" / "gradients.py"


def file_of(folder: Path, run: Run, **sets: Any) -> Path:
    """Write the resolved recipe."""
    model = Path(run.manifest.cast["student"].model.removeprefix("local:"))
    return tiny.resolved(folder, "swift", run, model, **sets)
