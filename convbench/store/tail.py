"""What a run's files got since they were read: a run of the appended records alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convbench.store.parts import files
from convbench.store.places import Places
from convbench.store.run import Run

GROWING = ("conversations", "verdicts", "comparisons", "advantages")
"""Files that are only appended to."""
BESIDE = ("examples.jsonl", "judges")
"""What records refer to; written before the first of them."""
LOOKED_AT = 4096
"""Bytes before a mark that tell whether the file is still the one that was read."""
BLOCK = 1 << 20

Signs = tuple[tuple[str, int, int], ...]
"""Name within the run, bytes and time of change of every file that grows: a quick look."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a file was read, its compressed parts with it."""

    size: int
    """The place behind the last whole line; 0 where there is none."""
    look: str
    """Hash of what stands before it."""


Marks = Mapping[Path, Mark]


def signs(run: Run) -> Signs:
    """Return how the files look from outside."""
    found = []
    for file in _files(run):
        for path in files(file):
            found.append(_sign(run, path))
    return tuple(found)


def _sign(run: Run, path: Path) -> tuple[str, int, int]:
    at = path.stat()
    return str(path.relative_to(run.path)), at.st_size, at.st_mtime_ns


def fixed(run: Run) -> Signs:
    """Return how the files look that say what a run's records mean: they do not grow with it."""
    places = [run.path / "run.json", *files(run.path / "examples.jsonl")]
    places += sorted((run.path / "judges").glob("*"))
    return tuple(_sign(run, path) for path in places)


def changed(run: Run) -> float:
    """Return when a run's files were written last, as seconds of the clock."""
    made = (run.path / "run.json").stat().st_mtime_ns
    return max([made, *(at for _, _, at in signs(run))]) / 1e9


def _files(run: Run) -> list[Path]:
    return [path for name in GROWING for path in run.files(f"{name}.jsonl")]


def marks(run: Run) -> dict[Path, Mark]:
    """Return how far each file can be read now, those of shards among them."""
    found = {}
    for path in _files(run):
        places = Places(path)
        end = places.end()
        if end:
            found[path] = Mark(end, _look(places, end))
    return found


def _look(places: Places, end: int) -> str:
    start = max(0, end - LOOKED_AT)
    return hashlib.sha256(places.read(start, end - start)).hexdigest()


def appended(since: Marks, now: Marks) -> bool:
    """Whether the files differ by what was appended to them alone; new ones may come."""
    for path, old in since.items():
        new = now.get(path)
        if new is None or new.size < old.size:
            return False
        if new != old and (new.size == old.size or _look(Places(path), old.size) != old.look):
            return False
    return True


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a run's file of conversations, copied into a tail."""

    path: Path
    start: int
    """Where it began in the file, in bytes."""
    at: int
    """Where it begins in the copy."""
    length: int


def tail(run: Run, since: Marks, now: Marks, folder: Path) -> tuple[Run, list[Piece]]:
    """Return a run in `folder` that holds the lines between two marks, and the same questions; and
    where its conversations lie in the run itself."""
    folder.mkdir()
    for name in BESIDE:
        for path in files(run.path / name):
            (folder / path.name).symlink_to(path.resolve())
    pieces: list[Piece] = []
    for name in GROWING:
        with (folder / f"{name}.jsonl").open("wb") as out:
            for path in run.files(f"{name}.jsonl"):
                start = since[path].size if path in since else 0
                end = now[path].size if path in now else 0
                if end > start and name == "conversations":
                    pieces.append(Piece(path, start, out.tell(), end - start))
                places = Places(path)
                for at in range(start, end, BLOCK):
                    out.write(places.read(at, min(BLOCK, end - at)))
    return Run(folder, run.manifest), pieces
