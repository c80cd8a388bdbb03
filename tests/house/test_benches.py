"""Benches run seldom: what they import is there all the same."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"


def test_every_bench_can_be_imported() -> None:
    names = sorted(path.stem for path in BENCH.glob("[a-z]*.py"))
    assert names
    for name in names:
        import_module(f"tests.bench.{name}")
