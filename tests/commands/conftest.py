from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.typed import Typist


@pytest.fixture
def typist(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Typist:
    """A command line in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Typist(capfd, monkeypatch)
