"""Which walls stand on this machine, for the tests of each."""

from __future__ import annotations

import pytest

from convbench.errors import MissingDependency
from convbench.sandbox import Limits, boundary
from tests.support.exhaustive import first_of


def stands(kind: str = "auto") -> bool:
    """Whether this wall stands here."""
    try:
        return bool(boundary(kind))
    except MissingDependency:
        return False


WALLS = first_of(sorted(("bubblewrap", "landlock"), key=lambda kind: not stands(kind)))
"""For `params`: `make test` takes one that stands."""


def limits_of(kind: str) -> Limits:
    """Return small limits inside this wall; skips where it does not stand."""
    if not stands(kind):
        pytest.skip(f"no {kind} on this machine")
    return Limits(seconds=0.3, memory_mb=256, output_kb=64, kind=kind)
