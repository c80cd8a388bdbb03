"""Read the comparisons of a run, `comparisons.jsonl`: one line for each order that was judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from convbench.schema.judge import Comparison
from convbench.store.jsonl import lines
from convbench.store.run import Run
from convbench.store.shape import an_object, checked

Asked = tuple[str, str, str]
"""(conversation_id shown first, conversation_id shown second, fingerprint of the judge)."""


def comparisons_file(run: Run) -> Path:
    """Return the path of a run's comparisons."""
    return run.path / "comparisons.jsonl"


def asked(one: Comparison) -> Asked:
    """Return the key of a comparison."""
    return one.first, one.second, one.fingerprint


def comparisons(run: Run) -> Iterator[Comparison]:
    """Return the newest comparison of each key, in the order of the file. Raises RunError for a
    damaged line."""
    found: dict[Asked, Comparison] = {}
    path = comparisons_file(run)
    for number, line in lines(path):
        where = f"{path}:{number}"
        an_object(where, line, ("first", "second", "judge", "fingerprint", "group_id"))
        one = checked(where, line, Comparison)
        found.pop(asked(one), None)
        found[asked(one)] = one
    return iter(found.values())
