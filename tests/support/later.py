"""Modules that take seconds to import (torch and what stands on it): imported by the test that uses
them, not by the file that holds it, so that tests are found soon."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

HEAVY = ("torch", "transformers", "datasets", "trl", "scipy", "pandas", "matplotlib", "litellm")
imported_early = pytest.StashKey[list[str]]()
"""The heavy modules that test files had imported when all tests were collected."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note what was imported by then, for a test to look at."""
    session.config.stash[imported_early] = [name for name in HEAVY if name in sys.modules]


class _Later:
    """Stands for a module until one of its names is asked for, and gives that name."""

    def __init__(self, name: str) -> None:
        self._module = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks at all that a file holds
            raise AttributeError(name)
        return getattr(import_module(self._module), name)


def later(name: str) -> Any:
    """Return what stands for a module that is imported at its first use."""
    return _Later(name)


def needs(*names: str) -> None:
    """Skip the rest of a test file where one of these packages is not installed."""
    for name in names:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
