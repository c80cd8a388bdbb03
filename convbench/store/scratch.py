"""Make temporary folders named by their process; folders of killed processes are removed when the
next one is made."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convbench.store.jsonl import disk_error
from convbench.store.process import Process, has_ended, this_process

NAME = re.compile(r"([0-9a-f]{8})-(\d{1,12})-(\d{1,20})-[0-9a-f]{8}")
"""Hash of boot id and PID namespace, process id, start time, random suffix."""


def scratch_path() -> Path:
    """Return a new path in the system's temporary folder, for a folder which the caller makes and
    removes.

    Folders of this user's ended processes are removed first.
    """
    return _new_path(Path(tempfile.gettempdir()), "convbench-")


@contextmanager
def make_workspace(folder: Path, prefix: str) -> Iterator[Path]:
    """Make a temporary folder inside `folder`, which is made too, yield its path, and remove it at
    the end.

    Folders of this prefix from this user's ended processes are removed first. Raises RunError if it
    cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = _new_path(folder, prefix)
        path.mkdir(mode=0o700)
    except OSError as error:
        raise disk_error(folder, error) from None
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _new_path(folder: Path, prefix: str) -> Path:
    mine = this_process()
    mark = hashlib.sha256(mine.machine.encode()).hexdigest()[:8]
    if mine.machine:
        _remove_dead(folder, prefix + mark, mine)
    return folder / f"{prefix}{mark}-{mine.pid}-{mine.started or '0'}-{secrets.token_hex(4)}"


def _remove_dead(folder: Path, start: str, mine: Process) -> None:
    """Remove this user's folders from ended processes of this machine."""
    with os.scandir(folder) as entries:
        names = [entry for entry in entries if entry.name.startswith(start)]
    for entry in names:
        match = NAME.fullmatch(entry.name[len(start) - 8 :])
        if match is None or not int(match[2]) or not entry.is_dir(follow_symlinks=False):
            continue
        whose = mine.model_copy(update={"pid": int(match[2]), "started": match[3]})
        with contextlib.suppress(FileNotFoundError):  # another process removes it just now
            if entry.stat(follow_symlinks=False).st_uid == os.getuid() and has_ended(whose):
                shutil.rmtree(entry.path, ignore_errors=True)
