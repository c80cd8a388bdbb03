"""Test files are compiled once for all workers, not once in each.

Every worker of xdist imports every test file. In a fresh clone all of them would compile the same
file at the same time; so each imports a share of its own first, and finds the others' on the disk
when it comes to them.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from pathlib import Path

import pytest


def pytest_collection(session: pytest.Session) -> None:
    """Import this worker's share of the test files before all of them are collected."""
    worker = getattr(session.config, "workerinput", None)
    if worker is not None:
        files, count = test_files(session.config), worker["workercount"]
        number = int(worker["workerid"].removeprefix("gw")) % count
        for file in files[len(files) * number // count : len(files) * (number + 1) // count]:
            _import_file(file.relative_to(session.config.rootpath))


def test_files(config: pytest.Config) -> list[Path]:
    """Return the test files below the folders that are to be collected."""
    folders = [config.rootpath / str(argument) for argument in config.args]
    ignored = [config.rootpath / str(path) for path in config.getoption("ignore") or []]
    files = sorted({file for folder in folders for file in folder.rglob("test_*.py")})
    return [
        file
        for file in files
        if file.is_relative_to(config.rootpath)
        and not any(file.is_relative_to(path) for path in ignored)
    ]


def _import_file(file: Path) -> None:
    # collection comes to it again, and says what is the matter
    with contextlib.suppress(Exception, pytest.skip.Exception):
        import_module(".".join(file.with_suffix("").parts))
