"""A file of JSON lines that grows: its older lines lie compressed beside it.

`NAME.jsonl` is what is appended to, as plain text. Once it is long it is renamed to
`NAME-00001.jsonl` and compressed into `NAME-00001.jsonl.zst`, and a new `NAME.jsonl` begins. Every
step is one rename, so that a kill at any instant leaves each line in one place: of a number that
lies there twice, the compressed part counts, because it is renamed into place when it is whole.

A compressed part is zstd frames (RFC 8878) of whole lines, each on its own. It may come from a
stranger: how much it can grow to is read off its frames' headers before a byte is decompressed,
since a block holds at most 128 KiB, whatever the headers claim.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from convbench.errors import RunError
from convbench.store.shape import LONGEST
from convbench.util.regular import RATIO, SPARE, open_new, open_to_read

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdCompressor, ZstdDecompressor

LONG = 16 << 20
"""Bytes at which a file is compressed while it is written."""
WORTH = 4 << 20
"""Bytes at which it is compressed when it is closed."""
COMPRESSED = ".zst"
FRAME = 256 << 10
"""Bytes of lines in one frame, about: what is decompressed to look up one record."""
PARTS_KNOWN = 1024
"""Compressed parts whose frames are remembered: some ten kilobytes each, for every command looks at
a part several times."""
MAGIC = 0xFD2FB528
BLOCK = 128 << 10
"""Most bytes that a block decompresses to."""
WINDOW = 128 << 20
"""Largest window that a frame may ask a reader to hold in memory."""


def list_parts(path: Path) -> list[Path]:
    """Return the paths of a file's parts, oldest first, without the file itself; empty if it has
    none.

    Where a part is there both plain and compressed, the compressed one is returned. Nothing is
    opened. Raises RunError if the folder cannot be listed.
    """
    by_number: dict[int, Path] = {}
    for number, part in _numbered_parts(path):
        if part.suffix == COMPRESSED or number not in by_number:
            by_number[number] = part
    return [by_number[number] for number in sorted(by_number)]


def list_files(path: Path) -> list[Path]:
    """Return the paths of a file's parts, oldest first, then of the file itself; those that
    exist."""
    return [*list_parts(path), *([path] if path.exists() else [])]


def file_exists(path: Path) -> bool:
    """Return True if a file of JSON lines exists, whole or in parts only."""
    return path.exists() or bool(list_parts(path))


def plain_size(path: Path) -> int:
    """Return the bytes that a file and its parts hold before compression, 0 if there is none."""
    return sum(part_size(part) for part in list_files(path))


def part_size(path: Path) -> int:
    """Return the bytes that one part holds, before compression."""
    if path.suffix != COMPRESSED:
        return path.stat().st_size
    return sum(frame.size for frame in read_frames(path))


def iter_streams(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Yield (path, open binary stream of decompressed lines) of every part and then of the file.

    Each stream is closed when the next is asked for; without a file nothing is yielded. A writer
    may compress the file meanwhile: what was there at the beginning is read once.
    """
    while True:
        before = [number for number, _ in _numbered_parts(path)]
        with contextlib.ExitStack() as stack:
            tail = stack.enter_context(open_to_read(path)) if path.exists() else None
            if [number for number, _ in _numbered_parts(path)] != before:
                continue  # the file was compressed between the two looks
            for number in sorted(set(before)):
                with _open_numbered(path, number) as part:
                    yield part
            if tail is not None:
                yield path, tail
            return


def raw_lines(path: Path) -> Iterator[bytes]:
    """Yield every line of a file and its parts with its newline; a torn last line and empty lines
    too.

    Without a file nothing is yielded. Raises RunError for a line of more than 256 MiB, and for a
    file that cannot be read.
    """
    number = 0
    try:
        for _, stream in iter_streams(path):
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
def _open_numbered(path: Path, number: int) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a part, which may be compressed meanwhile."""
    uncompressed, compressed = _part_paths(path, number)
    try:
        with open_part(compressed) as stream:
            yield compressed, stream
            return
    except FileNotFoundError:
        pass
    with contextlib.ExitStack() as stack:
        try:
            file: BinaryIO = stack.enter_context(open_to_read(uncompressed))
            name = uncompressed
        except FileNotFoundError:
            file, name = stack.enter_context(open_part(compressed)), compressed
        yield name, file


class Compressor:
    """Makes compressed parts of a file that is being written by this process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread: threading.Thread | None = None
        self._finish_killed()

    def rotate(self) -> None:
        """Rename the file, which must end with a whole line, to its next numbered part, and
        compress that in a thread.

        An earlier compression is waited for. The caller opens the file anew. Raises OSError.
        """
        number = max((number for number, _ in _numbered_parts(self.path)), default=0) + 1
        uncompressed, _ = _part_paths(self.path, number)
        self.path.rename(uncompressed)
        self.wait()
        self._thread = threading.Thread(
            target=_compress_if_room, args=(uncompressed,), name="compress"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the part that was renamed last is compressed; return at once if there is
        none."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _finish_killed(self) -> None:
        """Go on with what a killed process left: compress plain parts, drop those that are."""
        for _, part in list(_numbered_parts(self.path)):
            if part.suffix != COMPRESSED:
                compressed = part.with_name(part.name + COMPRESSED)
                if compressed.exists():
                    part.unlink(missing_ok=True)
                else:
                    _compress_if_room(part)
        for left in self.path.parent.glob(f".{glob_safe(self.path.stem)}-*{COMPRESSED}.tmp"):
            left.unlink(missing_ok=True)


def _compress_if_room(uncompressed: Path) -> None:
    """Compress a part; where the disk has no room it stays as it is, which reads the same."""
    compressed = uncompressed.with_name(uncompressed.name + COMPRESSED)
    temporary = compressed.with_name(f".{compressed.name}.tmp")
    own = make_compressor()
    try:
        with open_to_read(uncompressed) as source, open_new(temporary) as target:
            for block in whole_lines(source):
                target.write(own.compress(block))
            target.flush()
            os.fsync(target.fileno())
        temporary.replace(compressed)
        uncompressed.unlink()
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def whole_lines(source: BinaryIO, size: int = FRAME) -> Iterator[bytes]:
    """Yield blocks that end where a line ends, each of `size` bytes and what its last line has
    beyond.

    The last block ends as the source does. An empty source yields nothing.
    """
    while block := source.read(size):
        yield block + (b"" if block.endswith(b"\n") else source.readline())


def glob_safe(name: str) -> str:
    """Return a name with `[`, `]`, `*` and `?` escaped, as a glob pattern that matches only this
    name."""
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def _part_paths(path: Path, number: int) -> tuple[Path, Path]:
    uncompressed = path.with_name(f"{path.stem}-{number:05d}{path.suffix}")
    return uncompressed, uncompressed.with_name(uncompressed.name + COMPRESSED)


def _numbered_parts(path: Path) -> list[tuple[int, Path]]:
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
    numbered_names = [(int(match[1]), name) for name in names if (match := pattern.fullmatch(name))]
    return [(number, path.with_name(name)) for number, name in sorted(numbered_names)]


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: where it begins in the file, its bytes there, and at most how many it holds."""

    start: int
    length: int
    most: int
    size: int
    """Bytes it holds, as it says itself."""


def make_compressor() -> ZstdCompressor:
    """Return a new zstd compressor (level 3) whose frames hold their size and a checksum.

    It is for one thread: two that share one crash.
    """
    import zstandard

    return zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True)


def make_decompressor() -> ZstdDecompressor:
    """Return a new zstd decompressor that refuses frames with a window of more than 128 MiB."""
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=WINDOW)


def read_frames(path: Path) -> Sequence[Frame]:
    """Return the frames of a compressed part, in order, from their headers: nothing is
    decompressed.

    Raises RunError for a part that is no zstd, is cut short, or could grow beyond the allowed
    ratio; FileNotFoundError without one. An unchanged part is read once.
    """
    with open_to_read(path) as file:
        known = os.fstat(file.fileno())
    return _read_frames(path, known.st_dev, known.st_ino, known.st_size, known.st_ctime_ns)


@lru_cache(PARTS_KNOWN)
def _read_frames(path: Path, *_: int) -> tuple[Frame, ...]:
    """Read the frames of a part, once while it is what these numbers tell."""
    with open_to_read(path) as file:
        frames, size = tuple(_iter_frames(path, file)), file.seek(0, io.SEEK_END)
    most = sum(frame.most for frame in frames)
    if most > SPARE + RATIO * size:
        raise RunError(
            f"{path}: found {size:,} bytes that decompress to as many as {most:,}; expected at "
            f"most {SPARE + RATIO * size:,}; no run has such records"
        )
    return frames


def _iter_frames(path: Path, file: BinaryIO) -> Iterator[Frame]:
    start = 0
    while head := file.read(18):
        try:
            at, size, checksum = _parse_header(head)
            most, last = 0, False
            while not last:
                file.seek(start + at)
                (word,) = struct.unpack("<I", file.read(3) + b"\0")
                last, kind, length = bool(word & 1), word >> 1 & 3, word >> 3
                if kind == 3 or length > BLOCK:
                    raise ValueError
                most += BLOCK if kind == 2 else length
                at += 3 + (1 if kind == 1 else length)
            at += checksum
            if size > most or file.seek(0, io.SEEK_END) < start + at:
                raise ValueError
        except (ValueError, struct.error, IndexError):
            raise RunError(
                f"{path}: byte {start}: found no whole zstd frame; the file is damaged"
            ) from None
        yield Frame(start, at, most, size)
        start += at
        file.seek(start)


def _parse_header(head: bytes) -> tuple[int, int, int]:
    """Return (length of a frame's header, bytes of its contents, bytes of its checksum)."""
    (magic,) = struct.unpack("<I", head[:4])
    flags = head[4]
    single = flags >> 5 & 1
    wide = (single, 2, 4, 8)[flags >> 6]
    named = (0, 1, 2, 4)[flags & 3]
    if magic != MAGIC or not wide or flags & 8 or named:
        raise ValueError
    at = 5
    if not single:
        window = 1 << 10 + (head[at] >> 3)
        if window + window // 8 * (head[at] & 7) > WINDOW:
            raise ValueError
        at += 1
    size = int.from_bytes(head[at : at + wide], "little") + (256 if wide == 2 else 0)
    if single and size > WINDOW:
        raise ValueError
    return at + wide, size, 4 * (flags >> 2 & 1)


class _PartStream(io.RawIOBase):
    """What a part holds, as a stream of bytes; damage is a RunError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_to_read(path)
        self._reader = make_decompressor().stream_reader(
            self._file, read_size=FRAME, read_across_frames=True
        )

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The descriptor of the compressed file."""
        return self._file.fileno()

    def readinto(self, into: WriteableBuffer) -> int:
        import zstandard

        try:
            return self._reader.readinto(into)
        except zstandard.ZstdError as error:
            raise RunError(f"{self.path}: damaged: {error}") from None

    def close(self) -> None:
        self._file.close()
        super().close()


def open_part(path: Path) -> io.BufferedReader:
    """Open a compressed part and return a buffered stream of its decompressed bytes.

    Raises as `read_frames` does. Damage found while reading raises RunError too.
    """
    read_frames(path)
    return io.BufferedReader(_PartStream(path), FRAME)


def read_frame(path: Path, file: BinaryIO, frame: Frame) -> bytes:
    """Return the decompressed bytes of one frame of an open part.

    Raises RunError for a damaged frame.
    """
    import zstandard

    file.seek(frame.start)
    try:
        return make_decompressor().decompress(file.read(frame.length), max_output_size=frame.most)
    except zstandard.ZstdError as error:
        raise RunError(f"{path}: byte {frame.start}: damaged: {error}") from None
