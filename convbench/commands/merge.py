"""`convbench merge`: move the records of a run's shards into the run's own folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import path_text, print_fact, quoted
from convbench.errors import RunError
from convbench.options.shared import RunArgument


@dataclass(frozen=True)
class MergeOptions:
    """Make one folder of a run and its shards, as if one process had worked."""

    EXAMPLES: ClassVar = ("convbench merge", "convbench merge runs/big")

    run: RunArgument = None


class MergeAnswer(Answer):
    """`merge`: shards that were joined."""

    run: str
    """The run's folder."""
    shards: int
    """Number of shards that were joined."""
    records: dict[str, int]
    """Number of records by file."""


def run(options: MergeOptions, context: RunContext) -> MergeAnswer:
    """Join the shards of a run into its folder under its lock, and return the number of records by
    file.

    Raises RunError if it has none, or if processes work on them.
    """
    from convbench.store import find_run, shards
    from convbench.store.shard_attempts import refuse_in_work

    target = find_run(options.run)
    path = path_text(target.path)
    if not shards.is_sharded(target.path):
        raise RunError(
            f"{target.path}: found no shards; expected a run of build or judge --shards N"
        )
    with target.lock():
        refuse_in_work(target.path, "merging")
        count = shards.read_plan(target.path).count
        records = shards.merge_shards(target.path)
    context.add_next(f"convbench report {quoted(path)}")
    return MergeAnswer(run=path, shards=count, records=records)


def show(answer: MergeAnswer) -> None:
    """Print what was joined."""
    lines = (
        f"{count:,} lines of {file}"
        for file, count in answer.records.items()
        if file.endswith(".jsonl")
    )
    print_fact("run", quoted(answer.run))
    print_fact("joined", f"{answer.shards} shards: {', '.join(lines)}")


merge_command = Command(run, show)
