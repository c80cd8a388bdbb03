"""Attempts at the shards of a run: which process works on a shard, and whether work is left.

A scheduler (Slurm, Kubernetes, Ray, a process here) may start a shard again at any time. Two files
in a shard's folder give its state; with neither, all is done:

    .working   the process that works there, or that was killed there
    .left      why work is left

A process begins in the newest folder if nobody works there, else in a copy of it under the next
number. So a process that lost contact with its scheduler writes on into a folder that nobody reads,
and is stopped before its next model call. Two processes that begin at once get two folders, because
only one of them can create the file, or rename the copy.
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
from convbench.schema.base import FrozenModel
from convbench.store.jsonl import disk_error
from convbench.store.process import Process, has_ended, this_process
from convbench.store.shape import read_bytes, read_model
from convbench.store.shards import attempt_folder, read_plan, shard_folders

WORKING, LEFT = ".working", ".left"
NOT_BEGUN = "not begun yet"
MOST_KILLED = 12
"""Processes in a row that may be killed at a shard before it is given up."""
LONGEST = 2000
"""Largest number of characters of a reason in `.left`."""
EXISTS_ERRNOS = {errno.EEXIST, errno.ENOTEMPTY}


class LostShard(RunError):
    """Another process has begun this shard again."""


class ShardWorker(FrozenModel):
    """The process that works on a shard, as `.working` holds it."""

    process: Process
    """Its identity."""
    killed: int = Field(default=0, ge=0, le=1_000_000)
    """Number of processes in a row before it that were killed."""


@dataclass(frozen=True)
class ShardAttempt:
    """The work of one process on a shard, in a folder of its own."""

    run: Path
    index: int
    number: int

    @property
    def folder(self) -> Path:
        """Return the folder that holds the records of this attempt, such as
        `RUN/shards/00007.2`."""
        return attempt_folder(self.run, self.index, self.number)

    def is_lost(self) -> bool:
        """Return True if there is a folder of the next attempt at this shard: another process began
        it again."""
        return attempt_folder(self.run, self.index, self.number + 1).exists()

    def raise_if_lost(self) -> None:
        """Raise LostShard if another process began this shard after this one."""
        if self.is_lost():
            raise LostShard(
                f"shard {self.index} was begun again by another process; the later work of "
                "this process is discarded"
            )

    def end_work(self, left: str | None) -> None:
        """Record that this process no longer works on the shard, and why work is left (None: all is
        done).

        The reason is written to `.left` and the claim `.working` is removed. Raises RunError if the
        reason cannot be written.
        """
        if left is not None:
            _note_left(self.folder, left)
        (self.folder / WORKING).unlink(missing_ok=True)


def begin_attempt(run: Path, index: int) -> ShardAttempt:
    """Claim a shard for this process and return the attempt, which marks its folder as worked on.

    It is the newest folder if nobody has claimed it, else a copy of it under the next number.
    Raises RunError if the shard has no folder, if 12 processes in a row were killed at it, or if
    the disk cannot be written.
    """
    while True:
        before = shard_folders(run).get(index)
        if before is None:
            raise RunError(f"{run}: found no folder of shard {index}; expected one of its plan's")
        number = int(before.name.partition(".")[2])
        if _claim_folder(before, ShardWorker(process=this_process())):
            (before / LEFT).unlink(missing_ok=True)
            return ShardAttempt(run, index, number)
        killed = 0 if (before / LEFT).exists() else _killed_count(before) + 1
        if killed >= MOST_KILLED:
            why = f"shard {index} killed {killed} processes in a row (too little memory?)"
            _note_left(before, why)
            raise RunError(f"{why}; their output is in {before.parent / 'logs'}")
        if _copy_folder(
            before,
            attempt_folder(run, index, number + 1),
            ShardWorker(process=this_process(), killed=killed),
        ):
            return ShardAttempt(run, index, number + 1)


def _claim_folder(folder: Path, worker: ShardWorker) -> bool:
    """Mark a folder as worked on by this process. Return False if another process has done so."""
    try:
        with (folder / WORKING).open("xb") as file:
            file.write(worker.model_dump_json().encode())
    except FileExistsError:
        return False
    except OSError as error:
        raise disk_error(folder / WORKING, error) from None
    return True


def _copy_folder(before: Path, target: Path, worker: ShardWorker) -> bool:
    """Copy a folder to a new name for this process. Return False if the name exists already."""
    space = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        shutil.copytree(before, space, symlinks=True, ignore=shutil.ignore_patterns(".*"))
        _claim_folder(space, worker)
        space.rename(target)
    except (OSError, shutil.Error) as error:
        if isinstance(error, OSError) and error.errno in EXISTS_ERRNOS:
            return False
        raise RunError(f"{target}: cannot be written: {error!s:.200}") from None
    finally:
        shutil.rmtree(space, ignore_errors=True)
    return True


def _read_worker(folder: Path) -> ShardWorker | None:
    """Return the process that works in a folder, or None if there is none or it cannot be read."""
    with suppress(RunError):
        return read_model(folder / WORKING, ShardWorker)
    return None


def _killed_count(folder: Path) -> int:
    worker = _read_worker(folder)
    return 0 if worker is None else worker.killed


def mark_left(run: Path, reasons: Mapping[int, str]) -> None:
    """Write into the newest folder of each shard of `reasons`, by index, why work is left.

    Raises KeyError for a shard without a folder, RunError if the disk cannot be written.
    """
    folders = shard_folders(run)
    for index, why in reasons.items():
        _note_left(folders[index], why)


def _note_left(folder: Path, why: str) -> None:
    """Write why work is left. Not synced: a lost reason is found again by the next pass."""
    try:
        (folder / LEFT).write_bytes(why[:LONGEST].encode("utf-8", "replace"))
    except OSError as error:
        raise disk_error(folder / LEFT, error) from None


@dataclass
class ShardStates:
    """State of the shards of a run."""

    count: int
    working: dict[int, ShardWorker | None] = field(default_factory=dict)
    """Shards that a process works on, or was killed at, by index."""
    left: dict[int, str] = field(default_factory=dict)
    """Shards that nobody works on, by index, with the reason why work is left."""

    @property
    def done_count(self) -> int:
        """Return the number of shards that nobody works on and that have no work left."""
        return self.count - len(self.working.keys() | self.left.keys())

    @property
    def alive_shards(self) -> list[int]:
        """Return the indexes of the claimed shards whose process may still run.

        Left out are those whose process has surely ended on this machine; a process elsewhere, or
        an unreadable claim, counts as running.
        """
        return [
            index
            for index, worker in self.working.items()
            if worker is None or not has_ended(worker.process)
        ]


def shard_states(run: Path) -> ShardStates:
    """Return the state of the shards of a run; one with a reason in `.left` is in `left` alone.

    Raises RunError for a run without shards.
    """
    states = ShardStates(read_plan(run).count)
    for index, folder in shard_folders(run).items():
        if os.path.lexists(folder / LEFT):
            with suppress(RunError):  # a process that begins removes the file
                why = read_bytes(folder / LEFT)[: 4 * LONGEST].decode("utf-8", "replace")
                states.left[index] = why[:LONGEST]
                continue
        if os.path.lexists(folder / WORKING):
            states.working[index] = _read_worker(folder)
    return states


def refuse_in_work(run: Path, doing: str) -> None:
    """Raise RunError if a process works, or may still work, on a shard of a run; else do nothing.

    `doing` says in the message what needs none. Raises RunError too for a run without shards.
    """
    if alive := shard_states(run).alive_shards:
        raise RunError(
            f"{run}: {len(alive)} of its shards {'is' if len(alive) == 1 else 'are'} running; "
            f"expected none for {doing}: wait for the processes to end, or stop them and resume "
            f"with convbench build --run {run}"
        )
