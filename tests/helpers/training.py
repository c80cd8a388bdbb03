"""A tiny model, a judged run of its, and the command that trains on them quickly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convbench.learn.train import TrainResult, train
from convbench.options.shared import SpecOptions
from convbench.store.run import Run
from tests.helpers import tiny

QUICK = {
    "fit.max_steps": 3, "fit.learning_rate": 0.1, "fit.gradient_checkpointing": False,
    "fit.save": "end", "fit.log_every": 1, "fit.batch_size": 4, "fit.batch": 4,
    "data.unit": "conversation",
    "fit.arguments": {"optim": "sgd", "lr_scheduler_type": "constant", "max_grad_norm": 0.0,
                      "train_sampling_strategy": "sequential"},
}  # fmt: skip
Train = Callable[..., TrainResult]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return tiny.save_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def run(tmp_path: Path, model: Path) -> Run:
    """A judged run of its: nine train conversations of two policy turns each."""
    return tiny.judged_run(tmp_path / "run", f"local:{model}")


@pytest.fixture
def trained(run: Run, tmp_path: Path) -> Train:
    """Train a recipe on the run, three steps of gradient descent unless other settings are
    given."""

    def go(recipe: str, *, on: Run = run, out: str | None = None, **options: Any) -> TrainResult:
        sets = {**QUICK, **options.pop("sets", {})}
        pairs = tuple(f"{name}={json.dumps(value)}" for name, value in sets.items())
        specs = SpecOptions(sets=pairs)
        where = tmp_path / out if out else None
        options = {"in_process": True, **options}
        return train(recipe, [on], out=where, specs=specs, **options)

    return go


def log_of(result: TrainResult) -> list[dict[str, Any]]:
    """The log's lines with a loss."""
    assert result.path is not None
    training = json.loads((result.path / "training.json").read_text())
    return [entry for entry in training["log"] if "loss" in entry]
