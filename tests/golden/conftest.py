"""The option that writes the goldens anew, and what their tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.record import Recorder
from tests.golden.run import make_run


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-golden`."""
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Recorder:
    """Compares with golden files."""
    return Recorder(request.config.getoption("--update-golden", default=False))


@pytest.fixture(scope="session")
def golden_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of 24 conversations, to read; who changes it makes one with `make_run`."""
    return make_run(tmp_path_factory.mktemp("golden") / "run")
