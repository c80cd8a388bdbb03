"""Append and read JSON lines files, and write small files atomically.

A process killed while it writes leaves at most one line without its newline. Readers skip it;
the next writer cuts it off.
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

from convbench.errors import RunError
from convbench.store.shape import LONGEST, parse_object
from convbench.util.redact import known_forms, redact_bytes
from convbench.util.regular import open_new, open_to_append, open_to_read

SHOWN = 40
"""Characters of a file's name in that of its temporary file, whose length is limited."""


class Appender:
    """Appends complete lines and redacts the API keys in use, unless `redacted` is false (for a
    copy that is searched for keys). The first line, or `with`, opens the file and cuts off a torn
    last line. Only one process may have it open."""

    def __init__(self, path: Path, *, redacted: bool = True) -> None:
        self.path = path
        self._hidden = known_forms() if redacted else ()
        self._file: FileIO | None = None

    def open_file(self) -> FileIO:
        """Return the file opened for appending, after cutting off a torn last line; as it is if
        already open.

        Raises RunError if it cannot be written, or if its torn last line is longer than 256 MiB.
        """
        if self._file is not None:
            return self._file
        try:
            file = open_to_append(self.path)
            _cut_torn_line(self.path, file.fileno())
        except OSError as error:
            raise disk_error(self.path, error) from None
        self._file = file  # only now: nothing is appended to a torn line that could not be cut
        return file

    def write(self, line: bytes) -> None:
        """Append one line, given without its newline, and pass it to the system at once.

        A killed process therefore loses no line. A line that does not fit on the disk leaves no
        torn line and raises RunError.
        """
        file = self.open_file()
        data = memoryview(redact_bytes(line, self._hidden) + b"\n")
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:])
        except OSError as error:
            descriptor = file.fileno()
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
            raise disk_error(self.path, error) from None

    def close(self) -> None:
        """Sync the file to the disk and close it; a later line opens it again.

        Do nothing if it is not open. Raises RunError.
        """
        file = self._file
        if file is None:
            return
        try:
            os.fsync(file.fileno())
        except OSError as error:
            raise disk_error(self.path, error) from None
        finally:
            file.close()
            self._file = None

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


def _cut_torn_line(path: Path, descriptor: int) -> None:
    """Cut off what follows the last newline."""
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


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield every line of a file with its newline; a torn last line and empty lines too.

    Without a file nothing is yielded. Raises RunError for a line of more than 256 MiB, and for a
    file that cannot be read.
    """
    number = 0
    try:
        with open_to_read(path) as stream:
            while line := stream.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise RunError(
                        f"{path}:{number}: found a record of more than {LONGEST:,} bytes"
                    )
                yield line
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line with its newline) of every complete line.

    Empty lines and a torn last line are left out, but numbers count them. Without a file nothing is
    yielded. Raises RunError for a line of more than 256 MiB and for a file that cannot be read.
    """
    return ((number, line) for number, _, line in lines_with_offsets(path))


def lines_with_offsets(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number from 1, byte offset, line with its newline) of every complete line.

    Empty lines and a torn last line are left out, but count; without a file nothing is yielded.
    Raises RunError as `raw_lines` does.
    """
    start = 0
    for number, line in enumerate(raw_lines(path), 1):
        if line.endswith(b"\n") and line != b"\n":
            yield number, start, line
        start += len(line)


def read_records(path: Path, *texts: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of every complete line; nothing if there is no file.

    Empty lines and a torn last one are skipped. Raises RunError naming the line if it holds no
    object, or if one of the fields `texts` is missing or no text.
    """
    for number, line in numbered_lines(path):
        yield parse_object(f"{path}:{number}", line, texts)


def parse_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object in a line, empty if the line holds none."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def write_atomic(path: Path, data: bytes) -> None:
    """Write a small file atomically, in place of an existing one, with the API keys in use
    redacted.

    The folder must exist. A link at this path is replaced, not followed. Raises RunError if it
    cannot be written.
    """
    temporary = path.with_name(f".{path.name[:SHOWN]}.{os.getpid()}.tmp")
    try:
        with open_new(temporary) as file:
            file.write(redact_bytes(data))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise disk_error(path, error) from None


def write_file(path: Path, data: bytes, *, named_by_user: bool) -> None:
    """Write a file as `write_atomic` does, or with `named_by_user` as `write_user_file` does."""
    (write_user_file if named_by_user else write_atomic)(path, data)


def write_user_file(path: Path, data: bytes) -> None:
    """Write a file whose path the user gave, with the API keys in use redacted.

    An existing one is written in place: a link is followed, mode and owner stay, a device or pipe
    gets the bytes. A new one is written atomically. Raises RunError if it cannot be written.
    """
    try:
        if not path.exists():
            write_atomic(path.resolve(), data)  # a dangling link is followed too
            return
        with path.open("wb") as file:
            file.write(redact_bytes(data))
    except OSError as error:
        raise disk_error(path, error) from None


def move_to_user_file(temporary: Path, path: Path) -> None:
    """Move a file to a path that the user gave. Raises OSError.

    If something exists there, it is overwritten in place, and `temporary` stays for the caller to
    remove.
    """
    if not path.exists():
        temporary.replace(path.resolve())
        return
    with temporary.open("rb") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)


def disk_error(path: Path, error: OSError) -> RunError:
    """Return a RunError that says in one line why a file cannot be written; it is not raised here.

    For a full disk it says how to resume.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"{path}: the disk is full; what was written stays readable. Free some space, "
            "then repeat the command to resume"
        )
    return RunError(f"{path}: cannot be written: {error.strerror or error}")
