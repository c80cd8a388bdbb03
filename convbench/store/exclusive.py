"""Files that one process of many writes, on a file system that several machines share.

No lock is held, for one would outlive whoever holds it: `link` makes a file exclusively, over NFS
too, where O_EXCL alone does not on old servers; what changes is a chain of such files.
"""

from __future__ import annotations

import errno
import os
import random
import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from convbench.errors import RunError
from convbench.store.jsonl import disk_error
from convbench.store.shape import read_bytes

T = TypeVar("T")

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
KEPT = 64
"""Links of a chain that are kept."""
NUMBER = re.compile(r"\d{12}")


def put_once(path: Path, data: bytes) -> bool:
    """Write a file that is not there, whole; return whether it was this call that did.

    Raises RunError where it cannot be written at all.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return os.stat(temporary).st_nlink == 2  # made by us; the server's answer was lost
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            return _put_alone(path, data)
        return True
    except OSError as error:
        raise disk_error(path, error) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _put_alone(path: Path, data: bytes) -> bool:
    """The same where the file system has no links."""
    try:
        with path.open("xb") as file:
            file.write(data)
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    return True


class Register:
    """A small value that many processes change, one after another: files numbered from 1, each
    made once from the one before it. The newest is the value.

    Old ones are cleared away from the lowest number on. So whoever slept since it read a number
    may make a file that stands below the newest; that its base is gone tells it so, and it tries
    again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> tuple[int, bytes]:
        """Return (number, value); 0 and nothing before the first."""
        for _ in range(100):
            number = max(self._numbers(), default=0)
            if not number:
                return 0, b""
            try:
                return number, read_bytes(self._file(number))
            except RunError:
                if self._file(number).exists():
                    raise
        raise RunError(f"{self.folder}: changes faster than it can be read")

    def change(self, step: Callable[[bytes], tuple[bytes, T]]) -> T:
        """Put in place of the value what `step` makes of it; return what else it returns. It may
        be called several times. The same value again writes nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        while True:
            number, before = self.read()
            after, result = step(before)
            if after == before:
                return result
            if put_once(self._file(number + 1), after):
                if number == 0 or self._file(number).exists():
                    self._clear(number - KEPT)
                    return result
                with suppress(OSError):
                    self._file(number + 1).unlink()
            time.sleep(random.uniform(0.0, 0.01))

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder) if NUMBER.fullmatch(name)]
        except FileNotFoundError:
            return []

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:012}"

    def _clear(self, last: int) -> None:
        for number in sorted(self._numbers()):
            if number > last:
                return
            with suppress(OSError):
                self._file(number).unlink()
