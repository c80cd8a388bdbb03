"""Tests are collected without what takes seconds to import."""

from __future__ import annotations

import pytest

from tests.support.later import imported_early


def test_collection_imports_nothing_heavy(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.stash[imported_early] == [], (
        "a test file imports this; let it take the module from tests.support.later"
    )
