"""Make the rows of the grids' task from a seed; they are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.pocket.grids.world import pair_tasks
from convbench.tasks.arc_agi.grids import row

COUNTS = {"train": 12, "test": 8}
"""Tasks of each split, as in the paper."""


def load(
    *, seed: int, train: int = COUNTS["train"], test: int = COUNTS["test"]
) -> Iterator[dict[str, Any]]:
    """Yield rows of tasks whose rules are pairs, drawn by the seed."""
    found = pair_tasks(seed, {"train": train, "test": test})
    for number, (split, one) in enumerate(found):
        pairs = {
            "train": [{"input": p.input, "output": p.output} for p in one.shown],
            "test": [{"input": one.test.input, "output": one.test.output}],
        }
        yield {**row(f"{split}-{seed}-{number:02d}", split, pairs), "rule": one.rule}
