"""For all tests: what a user's machine remembers lies in a folder of the tests' own."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
