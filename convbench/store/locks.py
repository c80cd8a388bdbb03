"""Lock folders. The system releases the locks of a process that ends, so that a crash leaves no
stale lock."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from convbench.errors import RunError
from convbench.store.jsonl import disk_error
from convbench.util.regular import open_lock

LOCK = ".lock"
"""The file of a folder's lock; it also names the holder."""


@contextmanager
def folder_lock(
    folder: Path, doing: str, way_out: str = "", name: str = LOCK, wait_s: float = 0.0
) -> Iterator[int]:
    """Lock a folder for the body of `with`, and yield the lock's descriptor.

    `doing` says what for, for example that a run is written to. A child process that inherits the
    descriptor keeps the lock if this process is killed. Raises RunError naming the holder, and
    ending with `way_out`, if another process has the lock for longer than `wait_s` seconds;
    RunError too if the lock's file cannot be written.
    """
    descriptor = _acquire_lock(folder, name, fcntl.LOCK_EX, doing, way_out, wait_s)
    try:
        yield descriptor
    finally:
        _release_lock(descriptor)


@contextmanager
def shared_folder_lock(folder: Path, doing: str) -> Iterator[int | None]:
    """Lock a folder against `folder_lock`, together with other holders of a shared lock.

    Yields the lock's descriptor, or None, without a lock, if this process may not write to the
    folder. Raises RunError naming the holder if another process has the exclusive lock.
    """
    if not os.access(folder, os.W_OK):
        yield None
        return
    descriptor = _acquire_lock(folder, LOCK, fcntl.LOCK_SH, doing, "")
    try:
        yield descriptor
    finally:
        _release_lock(descriptor)


def _release_lock(descriptor: int) -> None:
    """Release a lock. Closing the file is not enough: a process that another thread is starting has
    all descriptors until its program begins, and would hold the lock until then."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _acquire_lock(
    folder: Path, name: str, kind: int, doing: str, way_out: str, wait_s: float = 0.0
) -> int:
    """Return the descriptor of a lock, with this process noted as its holder. Raises RunError if
    another process has it."""
    descriptor = None
    try:
        descriptor = open_lock(folder / name)
        _wait_for_lock(descriptor, kind, wait_s)
        _write_holder(descriptor, doing)
    except OSError as error:
        holder = "using it" if descriptor is None else _describe_holder(descriptor)
        if descriptor is not None:
            os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise disk_error(folder / name, error) from None
        raise RunError(
            f"{folder}: another process is {holder}; wait for it to end{way_out}"
        ) from None
    return descriptor


def _wait_for_lock(descriptor: int, kind: int, wait_s: float) -> None:
    """Lock a file. Raises BlockingIOError if another process has it for longer than `wait_s`."""
    ends = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends:
                raise
            time.sleep(0.02)


def _write_holder(descriptor: int, doing: str) -> None:
    """Write the holder into the lock's file, for the message to processes that are refused."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.stem
    words = [name, *(word for word in sys.argv[1:2] if word.isalpha())]
    holder = {"pid": os.getpid(), "command": " ".join(words), "doing": doing}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, orjson.dumps(holder) + b"\n", 0)


def _describe_holder(descriptor: int) -> str:
    """Return what the holder does and who it is. Wait up to half a second for its note, which it
    writes just after it has the lock."""
    for _ in range(50):
        if text := os.pread(descriptor, 4096, 0):
            break
        time.sleep(0.01)
    try:
        holder = orjson.loads(text)
        return f"{holder['doing']} ({holder['command']}, process {holder['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "using it"
