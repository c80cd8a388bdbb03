"""A tiny model and a judged run of its, which most tests of learners train on."""

from __future__ import annotations

from pathlib import Path

import pytest

from convbench.store.run import Run
from tests.helpers import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model."""
    return tiny.save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Run:
    """A judged run of its: nine train conversations of two policy turns each."""
    return tiny.judged_run(tmp_path_factory.mktemp("run") / "run", f"local:{model}")
