"""Make the rows of the grids' task from a seed; they are the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.pocket.grids.world import pair_tasks
from convbench.tasks.arc_agi.grids import task_row

COUNTS = {"train": 12, "test": 8}
"""Tasks of each split, as in the paper."""


def load(
    *, seed: int, train: int = COUNTS["train"], test: int = COUNTS["test"]
) -> Iterator[dict[str, Any]]:
    """Yield rows of tasks whose rules are pairs, drawn by the seed: first the train tasks, then the
    test tasks.

    Keys are `id`, `split`, `question`, `demonstrations` (input and output grids), `tests` (input
    grids), `outputs` (their hidden outputs), `shown` (the demonstrations as text) and `rule`.
    """
    tasks = pair_tasks(seed, {"train": train, "test": test})
    for number, (split, task) in enumerate(tasks):
        pairs = {
            "train": [{"input": p.input, "output": p.output} for p in task.shown],
            "test": [{"input": task.test.input, "output": task.test.output}],
        }
        yield {**task_row(f"{split}-{seed}-{number:02d}", split, pairs), "rule": task.rule}
