"""Attempts at the shards of a run: which process works on a folder, and what is left to do in it.

Whoever starts shards (Slurm, Kubernetes, Ray, a process here) may start one again at any time. Two
files in a shard's folder say how far it is; where there is neither, all is done:

    .working   the process that works there, or that was killed there
    .left      why something is left to do

A process begins in the newest folder where nobody works, else in a copy of it under the next
number. So one that lost contact with its scheduler writes on into a folder that nobody reads, and
is refused before its next call (`ShardAttempt.check`). Two that begin at once get two folders, for
a file is made and a folder renamed by one of them alone.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import Field

from convbench.errors import RunError
from convbench.schema.noun import Noun
from convbench.store.jsonl import disk_error
from convbench.store.process import Process, ended, this_process
from convbench.store.shape import read_bytes, read_model
from convbench.store.shards import part, parts, read_plan

WORKING, LEFT = ".working", ".left"
NOT_BEGUN = "not begun yet"
MOST_KILLED = 12
"""Processes in a row that may be killed at a shard before it is not begun again."""
LONGEST = 2000
"""Characters that are kept of why something is left."""
THERE = {errno.EEXIST, errno.ENOTEMPTY}


class LostShard(RunError):
    """A shard is another process's now."""


class Worker(Noun):
    """Who works on a shard."""

    process: Process
    """The process."""
    killed: int = Field(default=0, ge=0, le=1_000_000)
    """Processes in a row before it that did not come to an end of their own."""


@dataclass(frozen=True)
class ShardAttempt:
    """One process's work on a shard, in a folder of its own."""

    run: Path
    index: int
    number: int

    @property
    def folder(self) -> Path:
        """The shard's records."""
        return part(self.run, self.index, self.number)

    def lost(self) -> bool:
        """Return whether another process began after this one."""
        return part(self.run, self.index, self.number + 1).exists()

    def check(self) -> None:
        """Raise LostShard where another process began after this one."""
        if self.lost():
            raise LostShard(
                f"shard {self.index} was begun again by another process; what this one did since "
                "is left aside"
            )

    def end(self, left: str | None) -> None:
        """Note that nobody works here any more, and why something is left to do."""
        if left is not None:
            _note_left(self.folder, left)
        (self.folder / WORKING).unlink(missing_ok=True)


def begin_attempt(run: Path, index: int) -> ShardAttempt:
    """Begin to work on a shard. RunError where it has killed too many processes in a row, or the
    disk does not let it."""
    while True:
        before = parts(run).get(index)
        if before is None:
            raise RunError(f"{run}: found no folder of shard {index}; expected one of its plan's")
        number = int(before.name.partition(".")[2])
        if _take(before, Worker(process=this_process())):
            (before / LEFT).unlink(missing_ok=True)
            return ShardAttempt(run, index, number)
        killed = 0 if (before / LEFT).exists() else _killed(before) + 1
        if killed >= MOST_KILLED:
            why = f"shard {index} killed {killed} processes in a row (too little memory?)"
            _note_left(before, why)
            raise RunError(f"{why}; what they printed lies in {before.parent / 'logs'}")
        if _copy(
            before, part(run, index, number + 1), Worker(process=this_process(), killed=killed)
        ):
            return ShardAttempt(run, index, number + 1)


def _take(folder: Path, worker: Worker) -> bool:
    """Say that this process works in a folder; return False where somebody does already."""
    try:
        with (folder / WORKING).open("xb") as file:
            file.write(worker.model_dump_json().encode())
    except FileExistsError:
        return False
    except OSError as error:
        raise disk_error(folder / WORKING, error) from None
    return True


def _copy(before: Path, target: Path, worker: Worker) -> bool:
    """Copy a folder to a new name; return False where it is there already."""
    space = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        shutil.copytree(before, space, symlinks=True, ignore=shutil.ignore_patterns(".*"))
        _take(space, worker)
        space.rename(target)
    except (OSError, shutil.Error) as error:
        if isinstance(error, OSError) and error.errno in THERE:
            return False
        raise RunError(f"{target}: cannot be written: {error!s:.200}") from None
    finally:
        shutil.rmtree(space, ignore_errors=True)
    return True


def _worker(folder: Path) -> Worker | None:
    """Return who works in a folder; None where nobody does, or its file cannot be read."""
    with suppress(RunError):
        return read_model(folder / WORKING, Worker)
    return None


def _killed(folder: Path) -> int:
    worker = _worker(folder)
    return 0 if worker is None else worker.killed


def mark_left(run: Path, reasons: Mapping[int, str]) -> None:
    """Note of shards why something is left to do."""
    folders = parts(run)
    for index, why in reasons.items():
        _note_left(folders[index], why)


def _note_left(folder: Path, why: str) -> None:
    """Write why something is left; no fsync, for it is found out anew where it is lost."""
    try:
        (folder / LEFT).write_bytes(why[:LONGEST].encode("utf-8", "replace"))
    except OSError as error:
        raise disk_error(folder / LEFT, error) from None


@dataclass
class ShardStates:
    """How far the shards of a run are."""

    count: int
    working: dict[int, Worker | None] = field(default_factory=dict)
    """Those that a process works on, or was killed at."""
    left: dict[int, str] = field(default_factory=dict)
    """Those that nobody works on, with why something is left to do."""

    @property
    def done(self) -> int:
        """Those with nothing left to do."""
        return self.count - len(self.working.keys() | self.left.keys())

    @property
    def alive(self) -> list[int]:
        """Those whose process may be there still."""
        return [
            index
            for index, worker in self.working.items()
            if worker is None or not ended(worker.process)
        ]


def shard_states(run: Path) -> ShardStates:
    """Return how far each shard is. RunError for a run without shards."""
    states = ShardStates(read_plan(run).count)
    for index, folder in parts(run).items():
        if os.path.lexists(folder / LEFT):
            with suppress(RunError):  # who begins removes it
                why = read_bytes(folder / LEFT)[: 4 * LONGEST].decode("utf-8", "replace")
                states.left[index] = why[:LONGEST]
                continue
        if os.path.lexists(folder / WORKING):
            states.working[index] = _worker(folder)
    return states


def refuse_in_work(run: Path, doing: str) -> None:
    """Raise RunError where processes work on a run's shards, or may."""
    if alive := shard_states(run).alive:
        raise RunError(
            f"{run}: {len(alive)} of its shards {'is' if len(alive) == 1 else 'are'} in work; "
            f"expected none for {doing}: wait for the processes to end, or stop them and resume "
            f"with convbench build --run {run}"
        )
