"""Comparisons of conversations, kept in a run: `comparisons.jsonl`, a line an order that ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from convbench.schema.judge import Comparison
from convbench.store.jsonl import lines
from convbench.store.run import Run
from convbench.store.shape import an_object, checked

Asked = tuple[str, str, str]
"""conversation_id shown first, the one shown second, fingerprint of the judge."""


def comparisons_file(run: Run) -> Path:
    """Return where a run's comparisons lie."""
    return run.path / "comparisons.jsonl"


def asked(one: Comparison) -> Asked:
    """Return what names a comparison."""
    return one.first, one.second, one.fingerprint


def comparisons(run: Run) -> Iterator[Comparison]:
    """Return the newest comparison of every (first, second, judge), in the order they came."""
    found: dict[Asked, Comparison] = {}
    path = comparisons_file(run)
    for number, line in lines(path):
        where = f"{path}:{number}"
        an_object(where, line, ("first", "second", "judge", "fingerprint", "group_id"))
        one = checked(where, line, Comparison)
        found.pop(asked(one), None)
        found[asked(one)] = one
    return iter(found.values())
