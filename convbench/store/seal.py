"""Write and check the seals of a run: a hash chain over its records, extended when a writer
releases the run.

Records are only appended, so a seal covers the bytes since the last one (of the text, whatever
parts hold it) and the digest of the seal before it: a changed record or seal breaks the chain.
Seals are not signed. A completely new chain is found only by comparing its head with one noted
elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from convbench.errors import RunError
from convbench.schema.base import FrozenModel
from convbench.store.jsonl import Appender, numbered_lines
from convbench.store.parts import COMPRESSED, file_exists, iter_streams, plain_size, read_frames
from convbench.store.shape import parse_record
from convbench.store.shards import shard_folders
from convbench.util.regular import open_to_read

FILE = "seals.jsonl"
"""In the run's folder: one line a seal."""
RECORD_FILES = (
    "examples.jsonl",
    "conversations.jsonl",
    "verdicts.jsonl",
    "comparisons.jsonl",
    "advantages.jsonl",
)
FIXED_FILES = ("run.json", "judges/*.json", "media/*")
"""Patterns of files that are written once."""
BLOCK = 1 << 20

Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Seal(FrozenModel):
    """The digest of a byte range of a file, chained to the seal before it."""

    file: str = Field(max_length=300)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    sha256: Digest
    before: str = Field(max_length=64)
    """Digest of the seal before this one; empty for the first."""

    @property
    def head(self) -> str:
        """Return the SHA-256 of this seal as hex digits; it covers all seals before it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SealCheck:
    """Result of checking a run against its seals."""

    problems: tuple[str, ...]
    """One line for each difference; empty if every byte is as it was written."""
    files: int
    size: int
    """Bytes under a seal."""
    head: str
    """Digest of the newest seal, of a sharded run the digest of all its heads; empty without
    seals."""


def seal_run(folder: Path) -> None:
    """Append to `seals.jsonl` a seal for the bytes of each file since its last one; nothing if none
    are new.

    The caller holds the run's lock. Errors are ignored: on a full disk the writer has raised
    already, and `check_seals` reports unsealed bytes.
    """
    with suppress(RunError, OSError):
        seals = read_seals(folder)
        ends = {entry.file: entry.end for entry in seals}
        head = seals[-1].head if seals else ""
        fresh = []
        for name in _sealed_files(folder):
            start, end = ends.get(name, 0), _sealable_size(folder / name)
            if end > start or name not in ends:
                digest = _range_digest(folder / name, start, end)
                fresh.append(Seal(file=name, start=start, end=end, sha256=digest, before=head))
                head = fresh[-1].head
        if fresh:
            with Appender(folder / FILE) as file:
                for entry in fresh:
                    file.write(entry.model_dump_json().encode())


def read_seals(folder: Path) -> list[Seal]:
    """Return the seals of a run in order, empty if it has none.

    Raises RunError for a damaged line.
    """
    return [
        parse_record(f"{folder / FILE}:{at}", line, Seal)
        for at, line in numbered_lines(folder / FILE)
    ]


def check_seals(folder: Path) -> SealCheck:
    """Read every sealed byte again, compare it with the seals, and return the result.

    Shards, each with its own chain, are included; their problems begin with the shard's folder
    name. Unsealed bytes are a problem too. Raises RunError only if the seals cannot be read.
    """
    own, shards = (
        _check_folder(folder),
        {part.name: _check_folder(part) for part in shard_folders(folder).values()},
    )
    if not shards:
        return own
    inner = (f"{name}: {problem}" for name, check in shards.items() for problem in check.problems)
    every = [own, *shards.values()]
    return SealCheck(
        (*own.problems, *inner),
        sum(check.files for check in every),
        sum(check.size for check in every),
        hashlib.sha256("".join(check.head for check in every).encode()).hexdigest(),
    )


def _check_folder(folder: Path) -> SealCheck:
    seals = read_seals(folder)
    problems: list[str] = []
    written = b"".join(line for _, line in numbered_lines(folder / FILE))
    again = b"".join(entry.model_dump_json().encode() + b"\n" for entry in seals)
    if written != again or plain_size(folder / FILE) != len(again):
        problems.append(f"{FILE}: changed since it was written")
    head, ends, size = "", dict[str, int](), 0
    for number, entry in enumerate(seals, 1):
        where = f"{FILE}:{number}"
        if entry.before != head:
            problems.append(f"{where}: found a seal that does not follow the one before it")
        head = entry.head
        if ".." in Path(entry.file).parts or Path(entry.file).is_absolute():
            problems.append(f"{where}: file: found {entry.file!r}, which is no file of the run")
            continue
        if entry.start != ends.get(entry.file, 0):
            problems.append(f"{where}: found a gap between the sealed ranges of {entry.file}")
        ends[entry.file] = entry.end
        text = _describe_change(folder, entry)
        if text:
            problems.append(text)
        size += entry.end - entry.start
    problems += _unsealed_problems(folder, ends)
    return SealCheck(tuple(problems), len(ends), size, head)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as 64 hex digits. Raises OSError."""
    with open_to_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _range_digest(path: Path, start: int, end: int) -> str:
    digest = hashlib.sha256()
    for block in _iter_blocks(path, start, end):
        digest.update(block)
    return digest.hexdigest()


def _iter_blocks(path: Path, start: int, end: int) -> Iterator[bytes]:
    """Yield the bytes between two offsets of a file; records are read through all parts."""
    at = 0
    for part, stream in iter_streams(path):
        if part.suffix == COMPRESSED:  # parts that end before `start` are not decompressed
            size = sum(frame.size for frame in read_frames(part))
            if at + size <= start:
                at += size
                continue
        if at < start and part.suffix != COMPRESSED:
            size = part.stat().st_size
            skip = min(start - at, size)
            stream.seek(skip)
            at += skip
        while at < end and (block := stream.read(min(BLOCK, end - at))):
            yield block[max(0, start - at) :]
            at += len(block)


def _sealed_files(folder: Path) -> Iterator[str]:
    for name in RECORD_FILES:
        if file_exists(folder / name):
            yield name
    for pattern in FIXED_FILES:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                yield path.relative_to(folder).as_posix()


def _sealable_size(path: Path) -> int:
    """Return the number of bytes to seal: of records only complete lines, since the next writer
    cuts off a torn one."""
    size = plain_size(path)
    if path.name not in RECORD_FILES or not path.exists():
        return size
    at = last = path.stat().st_size
    with open_to_read(path) as file:
        while at > 0:
            start = max(0, at - BLOCK)
            file.seek(start)
            newline = file.read(at - start).rfind(b"\n")
            if newline >= 0:
                return size - last + start + newline + 1
            at = start
    return size - last


def _describe_change(folder: Path, entry: Seal) -> str | None:
    """Return a line that says how sealed bytes have changed, or None if they have not."""
    path = folder / entry.file
    if not file_exists(path):
        return f"{entry.file}: is missing"
    try:
        size = plain_size(path)
        if size < entry.end:
            return f"{entry.file}: has {size:,} bytes; {entry.end:,} were sealed"
        if _range_digest(path, entry.start, entry.end) == entry.sha256:
            return None
        where = _lines_of(path, entry.start, entry.end) if entry.file in RECORD_FILES else ""
    except (OSError, RunError) as error:
        return f"{entry.file}: cannot be read: {error}"
    return f"{entry.file}: {where}changed since it was sealed"


def _lines_of(path: Path, start: int, end: int) -> str:
    """Return `line 3 `, or words for several lines, for a byte range of a file."""
    first = 1 + sum(block.count(b"\n") for block in _iter_blocks(path, 0, start))
    last = first + sum(block.count(b"\n") for block in _iter_blocks(path, start, end - 1))
    return f"line {first} " if first == last else f"something in lines {first} to {last} "


def _unsealed_problems(folder: Path, ends: dict[str, int]) -> Sequence[str]:
    """Return a line for each file of a run with unsealed bytes."""
    problems = []
    for name in _sealed_files(folder):
        size = plain_size(folder / name)
        if name not in ends:
            problems.append(f"{name}: was never sealed")
        elif size > ends[name]:
            problems.append(f"{name}: {size - ends[name]:,} bytes came after the last seal")
    return problems
