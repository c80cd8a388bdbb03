"""Compressed parts of a file of JSON lines: zstd frames (RFC 8878) of whole lines, each on its own.

A part may come from a stranger. How much it can grow to is read off its frames' headers before a
byte is decompressed: a block holds at most 128 KiB, whatever the headers claim.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from convbench.errors import RunError
from convbench.regular import RATIO, SPARE, open_to_read

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdCompressor, ZstdDecompressor

FRAME = 256 << 10
"""Bytes of lines in one frame, about: what is decompressed to look up one record."""
MAGIC = 0xFD2FB528
BLOCK = 128 << 10
"""Most bytes that a block decompresses to."""
WINDOW = 128 << 20
"""Largest window that a frame may ask a reader to hold in memory."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: where it begins in the file, its bytes there, and at most how many it holds."""

    start: int
    length: int
    most: int
    size: int
    """Bytes it holds, as it says itself."""


def compressor() -> ZstdCompressor:
    """Return what makes frames, each with its size and a checksum. For one thread alone: two that
    share one crash."""
    import zstandard

    return zstandard.ZstdCompressor(level=3, write_checksum=True, write_content_size=True)


def decompressor() -> ZstdDecompressor:
    """Return what reads frames, within a window of WINDOW bytes."""
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=WINDOW)


def checked_frames(path: Path) -> list[Frame]:
    """Return the frames of a part. Raises RunError for what is no zstd, is cut short, or could grow
    beyond all measure; FileNotFoundError where there is no such file."""
    with open_to_read(path) as file:
        found, size = list(_frames(path, file)), file.seek(0, io.SEEK_END)
    most = sum(frame.most for frame in found)
    if most > SPARE + RATIO * size:
        raise RunError(
            f"{path}: found {size:,} bytes that decompress to as many as {most:,}; expected at "
            f"most {SPARE + RATIO * size:,}; no run has such records"
        )
    return found


def _frames(path: Path, file: BinaryIO) -> Iterator[Frame]:
    start = 0
    while head := file.read(18):
        try:
            at, size, checksum = _header(head)
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


def _header(head: bytes) -> tuple[int, int, int]:
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


class _Lines(io.RawIOBase):
    """What a part holds, as a stream of bytes; damage is a RunError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_to_read(path)
        self._reader = decompressor().stream_reader(
            self._file, read_size=FRAME, read_across_frames=True
        )

    def readable(self) -> bool:
        return True

    def readinto(self, into: WriteableBuffer) -> int:
        import zstandard

        try:
            return self._reader.readinto(into)
        except zstandard.ZstdError as error:
            raise RunError(f"{self.path}: damaged: {error}") from None

    def close(self) -> None:
        self._file.close()
        super().close()


def opened(path: Path) -> io.BufferedReader:
    """Open a part for reading its lines. Raises as `checked_frames`."""
    checked_frames(path)
    return io.BufferedReader(_Lines(path), FRAME)


def contents(path: Path, file: BinaryIO, frame: Frame) -> bytes:
    """Return what one frame holds. Raises RunError for a damaged one."""
    import zstandard

    file.seek(frame.start)
    try:
        return decompressor().decompress(file.read(frame.length), max_output_size=frame.most)
    except zstandard.ZstdError as error:
        raise RunError(f"{path}: byte {frame.start}: damaged: {error}") from None
