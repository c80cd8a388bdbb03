"""`merge`: one folder of a run and its shards."""

from __future__ import annotations

from dataclasses import dataclass

from convbench.errors import RunError
from convbench.options.spread import MergeOptions
from convbench.store import Run, find_run, shards
from convbench.store.shard_attempts import refuse_in_work


@dataclass
class MergeResult:
    """What was joined."""

    run: Run
    count: int
    """Shards."""
    records: dict[str, int]
    """Records by file."""


def merge(options: MergeOptions) -> MergeResult:
    """Join the shards of a run. Raises RunError where it has none, or processes work on them."""
    run = find_run(options.run)
    if not shards.is_sharded(run.path):
        raise RunError(f"{run.path}: found no shards; expected a run of build or judge --shards N")
    with run.lock():
        refuse_in_work(run.path, "merging")
        count = shards.read_plan(run.path).count
        return MergeResult(run, count, shards.merge(run.path))
