"""Read the comparisons of a run, `comparisons.jsonl`: one line for each order that was judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from convbench.schema.judge import Comparison
from convbench.store.jsonl import numbered_lines
from convbench.store.run import Run
from convbench.store.shape import parse_object, parse_record

ComparisonKey = tuple[str, str, str]
"""(conversation_id shown first, conversation_id shown second, fingerprint of the judge)."""


def comparisons_file(run: Run) -> Path:
    """Return the path of a run's comparisons."""
    return run.path / "comparisons.jsonl"


def comparison_key(comparison: Comparison) -> ComparisonKey:
    """Return the key of a comparison."""
    return comparison.first, comparison.second, comparison.fingerprint


def newest_comparisons(run: Run) -> Iterator[Comparison]:
    """Return the newest comparison of each key, in the order of the file. Raises RunError for a
    damaged line."""
    newest: dict[ComparisonKey, Comparison] = {}
    path = comparisons_file(run)
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        parse_object(where, line, ("first", "second", "judge", "fingerprint", "group_id"))
        comparison = parse_record(where, line, Comparison)
        newest.pop(comparison_key(comparison), None)
        newest[comparison_key(comparison)] = comparison
    return iter(newest.values())
