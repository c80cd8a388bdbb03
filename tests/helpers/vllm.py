"""A stand-in of vLLM that an interpreter finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that finds the stand-in when asked for vLLM."""
    wrapper = tmp_path / "python"
    stand_in = ROOT / "tests" / "models" / "stand_in"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={stand_in} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CONVBENCH_ROOT", str(ROOT))
    monkeypatch.setenv("CONVBENCH_PIDS", str(tmp_path / "pid"))
    return wrapper
