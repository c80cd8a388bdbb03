"""A viewer that listens while a test asks, and a browser that looks at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.viewer_runs import world
from tests.helpers.viewing import Looked, Viewer, browser, viewing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of all kinds, for tests that only read."""
    path = tmp_path_factory.mktemp("view") / "world"
    world(path)
    return path


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    """A viewer over it."""
    with viewing(folder) as found:
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless browser. Its driver keeps a loop running in this thread, so it is closed before
    the next module."""
    with browser() as found:
        yield found


@pytest.fixture
def look(chromium: Any) -> Iterator[Looked]:
    """A fresh browser profile. Whatever the page complains of fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(60_000)
    looked = Looked(context.new_page())
    yield looked
    context.close()
    assert looked.troubles == []
