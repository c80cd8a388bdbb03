"""Benches run seldom: what they import is there all the same."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize("name", sorted(path.stem for path in BENCH.glob("[a-z]*.py")))
def test_a_bench_can_be_imported(name: str) -> None:
    import_module(f"tests.bench.{name}")
