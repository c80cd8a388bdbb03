"""Open regular files and refuse everything else.

A folder may come from anywhere, and a name in it may lead to something else: a pipe that never
ends, a device, a link to another file of the user's, a few bytes that claim to be a terabyte.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader, BufferedWriter, FileIO
from pathlib import Path

from convbench.errors import NotRegularError

SPARE, RATIO = 64 << 20, 512
"""A file may be SPARE bytes long plus RATIO times the disk space that it takes."""
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def open_to_read(path: Path) -> BufferedReader:
    """Return a regular file opened for reading; links are followed. Raises OSError, NotRegularError
    for anything else and for a sparse file that takes far less disk space than its length."""
    return open(path, "rb", opener=_open_regular)


def open_to_append(path: Path) -> FileIO:
    """Return a regular file opened unbuffered for reading and appending, created if missing.
    Raises OSError, NotRegularError for anything else, links included."""
    return FileIO(path, "ab+", opener=_open_regular)


def open_lock(path: Path) -> int:
    """Return the writable descriptor of a lock file, created if missing. Raises OSError,
    NotRegularError for anything but a regular file, and for one with another name (a hard link)."""
    descriptor = _open_regular(path, os.O_RDWR | os.O_CREAT)
    if os.fstat(descriptor).st_nlink > 1:
        os.close(descriptor)
        raise _not_regular(path, "a file with several hard links")
    return descriptor


def open_new(path: Path) -> BufferedWriter:
    """Return a new file opened for writing; a link or file of this name is removed first.
    Raises OSError."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def _open_regular(path: str | Path, flags: int) -> int:
    """Return a descriptor as `open` does, without waiting for a pipe's other end.

    Links are followed for reading only. Raises OSError, NotRegularError for no regular file."""
    path, writes = Path(path), flags & (os.O_WRONLY | os.O_RDWR)
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | (os.O_NOFOLLOW if writes else 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise _not_regular(path, _kind_text(path.lstat())) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _not_regular(path, _kind_text(os.fstat(descriptor)))
        if not writes:
            _refuse_holes(path, descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _kind_text(known: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(known.st_mode), "something else")


def _refuse_holes(path: Path, descriptor: int) -> None:
    known = os.fstat(descriptor)
    if known.st_size <= SPARE + RATIO * 512 * known.st_blocks:
        return
    if os.lseek(descriptor, 0, os.SEEK_HOLE) < known.st_size:  # else the disk compresses
        raise _not_regular(path, f"a sparse file, {known.st_size:,} bytes long")
    os.lseek(descriptor, 0, os.SEEK_SET)


def _not_regular(path: Path, kind: str) -> NotRegularError:
    return NotRegularError(errno.EINVAL, f"found {kind}; expected a regular file", str(path))
