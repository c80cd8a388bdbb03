"""A file of JSON lines that grows: its older lines lie compressed beside it.

`NAME.jsonl` is what is appended to, as plain text. Once it is long it is renamed to
`NAME-00001.jsonl` and compressed into `NAME-00001.jsonl.zst`, and a new `NAME.jsonl` begins. Every
step is one rename, so that a kill at any instant leaves each line in one place: of a number that
lies there twice, the compressed part counts, because it is renamed into place when it is whole.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from convbench.errors import RunError
from convbench.regular import open_new, open_to_read
from convbench.store.frames import FRAME, checked_frames, compressor, opened
from convbench.store.shape import LONGEST

LONG = 16 << 20
"""Bytes at which a file is compressed while it is written."""
WORTH = 4 << 20
"""Bytes at which it is compressed when it is closed."""
COMPRESSED = ".zst"


def parts(path: Path) -> list[Path]:
    """Return the parts of a file of JSON lines, oldest first, without the file itself. The
    compressed ones among them are of bounded size when they are read (RunError)."""
    found: dict[int, Path] = {}
    for number, part in _numbered(path):
        if part.suffix == COMPRESSED or number not in found:
            found[number] = part
    return [found[number] for number in sorted(found)]


def files(path: Path) -> list[Path]:
    """Return the parts and the file itself, where it is there."""
    return [*parts(path), *([path] if path.exists() else [])]


def exists(path: Path) -> bool:
    """Whether a file of JSON lines is there, in whatever parts."""
    return path.exists() or bool(parts(path))


def plain_size(path: Path) -> int:
    """Return the bytes that a file and its parts hold, before compression."""
    return sum(_length(one) for one in files(path))


def _length(path: Path) -> int:
    if path.suffix != COMPRESSED:
        return path.stat().st_size
    return sum(frame.size for frame in checked_frames(path))


def streams(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield (its path, an open stream of plain lines) of every part and of the file, in order.

    A writer may compress the file meanwhile: what was there at the beginning is read once.
    """
    while True:
        before = [number for number, _ in _numbered(path)]
        with contextlib.ExitStack() as stack:
            tail = stack.enter_context(open_to_read(path)) if path.exists() else None
            if [number for number, _ in _numbered(path)] != before:
                continue  # the file was compressed between the two looks
            for number in sorted(set(before)):
                with _open(path, number) as part:
                    yield part
            if tail is not None:
                yield path, tail
            return


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield every line of a file and its parts, a torn last one too. Raises RunError for one that
    is no record, so long is it, and where a file cannot be read."""
    number = 0
    try:
        for _, stream in streams(path):
            while line := stream.readline(LONGEST + 1):
                number += 1
                if len(line) > LONGEST:
                    raise RunError(
                        f"{path}:{number}: found a record of more than {LONGEST:,} bytes"
                    )
                yield line
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}") from None


@contextlib.contextmanager
def _open(path: Path, number: int) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a part, which may be compressed meanwhile."""
    plain, compressed = _names(path, number)
    try:
        with opened(compressed) as stream:
            yield compressed, stream
            return
    except FileNotFoundError:
        pass
    with contextlib.ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(open_to_read(plain))
            name = plain
        except FileNotFoundError:
            file, name = stack.enter_context(opened(compressed)), compressed
        yield name, file


class Compressor:
    """Makes compressed parts of a file that is being written by this process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread: threading.Thread | None = None
        self._tidy()

    def rotate(self) -> None:
        """Take the file, which ends with a whole line, out of the way, and compress it beside
        what goes on. The caller opens the file anew."""
        number = max((number for number, _ in _numbered(self.path)), default=0) + 1
        plain, _ = _names(self.path, number)
        self.path.rename(plain)
        self.wait()
        self._thread = threading.Thread(target=_compress_if_room, args=(plain,), name="compress")
        self._thread.start()

    def wait(self) -> None:
        """Wait until what was taken out of the way is compressed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _tidy(self) -> None:
        """Go on with what a killed process left: compress plain parts, drop those that are."""
        for _, part in list(_numbered(self.path)):
            if part.suffix != COMPRESSED:
                compressed = part.with_name(part.name + COMPRESSED)
                if compressed.exists():
                    part.unlink(missing_ok=True)
                else:
                    _compress_if_room(part)
        for left in self.path.parent.glob(f".{glob_safe(self.path.stem)}-*{COMPRESSED}.tmp"):
            left.unlink(missing_ok=True)


def _compress_if_room(plain: Path) -> None:
    """Compress a part; where the disk has no room it stays as it is, which reads the same."""
    compressed = plain.with_name(plain.name + COMPRESSED)
    temporary = compressed.with_name(f".{compressed.name}.tmp")
    own = compressor()
    try:
        with open_to_read(plain) as source, open_new(temporary) as target:
            for block in whole_lines(source):
                target.write(own.compress(block))
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(compressed)
        plain.unlink()
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def whole_lines(source: BinaryIO, size: int = FRAME) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes that end where a line ends; a longer line is one block."""
    while block := source.read(size):
        yield block + (b"" if block.endswith(b"\n") else source.readline())


def glob_safe(name: str) -> str:
    """Return a name as a pattern that means itself."""
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def _names(path: Path, number: int) -> tuple[Path, Path]:
    plain = path.with_name(f"{path.stem}-{number:05d}{path.suffix}")
    return plain, plain.with_name(plain.name + COMPRESSED)


def _numbered(path: Path) -> list[tuple[int, Path]]:
    """Return (number, path) of every part, compressed or not yet, by number."""
    pattern = re.compile(
        rf"{re.escape(path.stem)}-(\d{{5,9}}){re.escape(path.suffix)}({re.escape(COMPRESSED)})?"
    )
    try:
        names = os.listdir(path.parent)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path.parent}: cannot be read: {error.strerror or error}") from None
    found = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [(number, path.with_name(name)) for number, name in sorted(found)]
