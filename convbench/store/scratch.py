"""Folders of temporary files, named by the process that makes them: those of one that was killed
are cleared by the next that makes one."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path

from convbench.store.claims import Process, ended, this_process

NAME = re.compile(r"convbench-([0-9a-f]{8})-(\d{1,12})-(\d{1,20})-[0-9a-f]{8}")
"""Mark of the machine and its space of processes, process, when it began, and what sets apart."""


def scratch() -> Path:
    """Return where a folder of temporary files may be made, after clearing what processes that are
    no more left there."""
    place = Path(tempfile.gettempdir())
    mine = this_process()
    mark = hashlib.sha256(mine.machine.encode()).hexdigest()[:8]
    if mine.machine:
        _clear(place, mark, mine)
    began = mine.started or "0"
    return place / f"convbench-{mark}-{mine.pid}-{began}-{secrets.token_hex(4)}"


def _clear(place: Path, mark: str, mine: Process) -> None:
    """Remove this user's folders of processes of this machine that have ended."""
    with os.scandir(place) as found:
        names = [one for one in found if one.is_dir(follow_symlinks=False)]
    for one in names:
        match = NAME.fullmatch(one.name)
        if match is None or match[1] != mark or not int(match[2]):
            continue
        whose = mine.model_copy(update={"pid": int(match[2]), "started": match[3]})
        if one.stat(follow_symlinks=False).st_uid == os.getuid() and ended(whose):
            shutil.rmtree(one.path, ignore_errors=True)
