"""JSON lines files that are only appended to, with a torn last line tolerated.

A process killed while it writes leaves at most one line without its newline. Readers skip it;
the next writer cuts it off. What has grown long is compressed beside the file (`store.parts`), and
read as if it stood in it.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from convbench.blot import exact, known
from convbench.errors import RunError
from convbench.regular import open_new, open_to_append
from convbench.store.parts import LONG, WORTH, Compressor, raw_lines
from convbench.store.shape import LONGEST, an_object

SHOWN = 40
"""Letters of a file's name in that of its temporary file, which must not be too long for one."""


class Appender:
    """Appends whole lines, without keys in use; with them where `blotted` is false, for a copy that
    is looked through for keys. The first line, or `with`, opens the file, which cuts off a torn
    last line. One process at a time may have it open."""

    def __init__(self, path: Path, *, blotted: bool = True) -> None:
        self.path = path
        self._hidden = known() if blotted else ()
        self._file: FileIO | None = None
        self._compressor: Compressor | None = None
        self._size = 0

    def open_file(self) -> FileIO:
        """Return the file, opened. RunError where it cannot be written."""
        if self._file is not None:
            return self._file
        try:
            self._compressor = self._compressor or Compressor(self.path)
            file = open_to_append(self.path)
            self._size = _cut_torn_line(self.path, file.fileno())
        except OSError as error:
            raise disk_error(self.path, error) from None
        self._file = file  # not before: what could not be cut is not written behind
        return file

    def write(self, line: bytes) -> None:
        """Append one line and hand it to the system at once, so that a kill cannot take it.

        A line that does not fit on the disk leaves nothing behind.
        """
        file = self.open_file()
        data = memoryview(exact(line, self._hidden) + b"\n")
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:])
        except OSError as error:
            descriptor = file.fileno()
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise disk_error(self.path, error) from None
        self._size += written
        if self._size >= LONG:
            self._rotate(file)

    def _rotate(self, file: FileIO) -> FileIO:
        """Have what was written compressed, and go on with an empty file."""
        file.close()
        self._file = None
        try:
            if self._compressor is not None:
                self._compressor.rotate()
        except OSError as error:
            raise disk_error(self.path, error) from None
        return self.open_file()

    def close(self) -> None:
        """Write the file to the disk and close it, a long one compressed; a later line opens it
        again."""
        file, compressor = self._file, self._compressor
        if file is None:
            return
        if self._size >= WORTH:
            file = self._rotate(file)
        try:
            os.fsync(file.fileno())
        except OSError as error:
            raise disk_error(self.path, error) from None
        finally:
            file.close()
            self._file = self._compressor = None
            if compressor is not None:
                compressor.wait()

    def __enter__(self) -> Self:
        self.open_file()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _cut_torn_line(path: Path, descriptor: int) -> int:
    """Cut off what follows the last line end; return the bytes that are left."""
    size = os.fstat(descriptor).st_size
    at = size
    while at > 0:
        if size - at > LONGEST:
            raise RunError(f"{path}: found a last line of more than {LONGEST:,} bytes")
        start = max(0, at - 65536)
        newline = os.pread(descriptor, at - start, start).rfind(b"\n")
        if newline >= 0:
            at = start + newline + 1
            break
        at = start
    if at < size:
        os.ftruncate(descriptor, at)
    return at


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, bytes) of every whole line, those of compressed parts first and
    numbered on; nothing where there is no file."""
    return ((number, line) for number, _, line in placed(path))


def placed(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number from 1, first byte, line) of every whole line. The byte is one of the
    file and its parts as one text (`store.places`)."""
    start = 0
    for number, line in enumerate(raw_lines(path), 1):
        if line.endswith(b"\n") and line != b"\n":
            yield number, start, line
        start += len(line)


def records(path: Path, *texts: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of every whole line, with a text in each of these fields; a line
    without is a RunError naming it."""
    for number, line in lines(path):
        yield an_object(f"{path}:{number}", line, texts)


def parse(line: bytes) -> dict[str, Any]:
    """Return a line's object; an empty one where it holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file of ours so that it is there whole or not at all, without keys in use.
    What lay there is replaced, a link itself and not what it leads to."""
    temporary = path.with_name(f".{path.name[:SHOWN]}.{os.getpid()}.tmp")
    try:
        with open_new(temporary) as file:
            file.write(exact(data))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_error(path, error) from None


def write_file(path: Path, data: bytes, *, named: bool) -> None:
    """Write a file of ours, or one that the user named."""
    (write_named if named else write_whole)(path, data)


def write_named(path: Path, data: bytes) -> None:
    """Write a file that the user named, without keys in use. One that is there stays what it is:
    its link is followed, its mode and owner hold, and a device or pipe is written to."""
    try:
        if not path.exists():
            write_whole(path.resolve(), data)  # where a link to nothing yet leads
            return
        with path.open("wb") as file:
            file.write(exact(data))
    except OSError as error:
        raise disk_error(path, error) from None


def move_named(made: Path, path: Path) -> None:
    """Put a file of ours where the user named one, which stays what it is. Raises OSError."""
    if not path.exists():
        made.replace(path.resolve())
        return
    with made.open("rb") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


def disk_error(path: Path, error: OSError) -> RunError:
    """Say in one line why a file cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"{path}: the disk is full; what was written stays readable. Free some space, "
            "then give the same command again to resume"
        )
    return RunError(f"{path}: cannot be written: {error.strerror or error}")
