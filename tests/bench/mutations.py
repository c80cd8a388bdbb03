"""Random changes of records, and whether `convbench verify` finds every one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.bench.bench import Row, convbench

CHANGES = 1000
QUESTIONS = 5000
"""Of a run with two conversations each."""


def mutate(data: bytes, draw: random.Random) -> tuple[bytes, str]:
    """Return a file's bytes with one thing changed, and what: a byte, a digit, a bit, a word in
    another place, a line that is gone, twice there, or before its neighbour."""
    ways = [_byte, _digit, _bit, _gone, _twice, _swapped, _cut, _added]
    while True:
        way = draw.choice(ways)
        changed = way(data, draw)
        if changed != data:
            return changed, way.__name__.strip("_")


def _byte(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([draw.randrange(32, 127)]) + data[at + 1 :]


def _digit(data: bytes, draw: random.Random) -> bytes:
    places = [at for at, one in enumerate(data) if 48 <= one < 58]
    if not places:
        return data
    at = draw.choice(places)
    return data[:at] + bytes([draw.randrange(48, 58)]) + data[at + 1 :]


def _bit(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _lines(data: bytes, draw: random.Random) -> tuple[list[bytes], int]:
    lines = data.splitlines(keepends=True)
    return lines, draw.randrange(len(lines))


def _gone(data: bytes, draw: random.Random) -> bytes:
    lines, at = _lines(data, draw)
    return b"".join([*lines[:at], *lines[at + 1 :]])


def _twice(data: bytes, draw: random.Random) -> bytes:
    lines, at = _lines(data, draw)
    return b"".join([*lines[: at + 1], *lines[at:]])


def _swapped(data: bytes, draw: random.Random) -> bytes:
    lines, at = _lines(data, draw)
    other = draw.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]
    return b"".join(lines)


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _added(data: bytes, draw: random.Random) -> bytes:
    return data + draw.choice([b"\n", b" ", b"{}\n", data[-20:]])


def whole(files: Mapping[Path, bytes]) -> int:
    """Return a number that tells two states of files apart."""
    return hash(tuple(sorted((str(path), data) for path, data in files.items())))


def sealed_files(root: Path) -> list[Path]:
    """Return every file that `verify` answers for: records, checkpoints, reports, published."""
    out = ("calls.jsonl", "attempts.jsonl", "label.json", "train.log")
    found = (p for p in sorted(root.rglob("*")) if p.is_file() and p.stat().st_size)
    return [p for p in found if p.name not in out and not p.name.startswith(".")]


def mutations(folder: Path) -> Iterator[Row]:
    """A run with its evaluation, checkpoint, report and published folder: 1,000 random changes, one
    at a time; then the time of `verify` on 10,000 conversations."""

    from convbench.errors import ConvbenchError
    from convbench.hub.verify import verify_target

    run = folder / "small"
    small = ["build", "demo", "--model", "pocket", "--tasks", "8", "--run", "small", "--quiet"]
    convbench([*small, "--samples", "2"], folder)
    convbench(["judge", "--judge", "rules", "--run", "small", "--quiet"], folder)
    convbench(["train", "swift", "--run", "small", "--set", "fit.max_steps=2"], folder)
    convbench(["report", "small", "--split", "all", "--out", "small/reports"], folder)
    convbench(["publish", "me/small", "--run", "small", "--dry-run"], folder)
    assert not verify_target(str(run)).problems
    draw, found, files = random.Random(11), 0, sealed_files(run)
    for _ in range(CHANGES):
        path = draw.choice(files)
        before = path.read_bytes()
        changed, how = mutate(before, draw)
        path.write_bytes(changed)
        try:
            told = bool(verify_target(str(_part(run, path))).problems)
        except ConvbenchError:  # what cannot be read at all ends the command with one line
            told = True
        found += told
        if not told:
            print(f"not found: {how} in {path.relative_to(run)}")
        path.write_bytes(before)
    yield Row("random changes found", found, f"of {CHANGES}", CHANGES, at_least=True)
    convbench(["build", "demo", "--model", "scripted:policy", "--run", "large", "--quiet"], folder)
    _grow(folder / "large")
    convbench(["judge", "--judge", "rules", "--run", "large", "--quiet"], folder)
    convbench(["report", "large", "--split", "all", "--out", "large/reports"], folder)
    convbench(["publish", "me/large", "--run", "large", "--dry-run"], folder)
    started = time.monotonic()
    used = convbench(["verify", "large"], folder)
    yield Row("verify 10,000 conversations", time.monotonic() - started, "s", 60.0)
    yield Row("verify 10,000 conversations", used.cpu_s, "CPU s", 60.0)


def _part(run: Path, path: Path) -> Path:
    """Return the smallest thing that answers for a file, so that 1,000 changes take minutes."""
    for folder in (run / "publish", run / "reports"):
        if path.is_relative_to(folder):
            return folder
    if path.is_relative_to(run / "checkpoints"):
        return run / "checkpoints" / path.relative_to(run / "checkpoints").parts[0]
    return run


def _grow(run: Path) -> None:
    """Make a run one of 10,000 conversations under new keys, and seal it as it is."""
    from tests.bench import records

    count, records.COUNT = records.COUNT, 2 * QUESTIONS
    try:
        records._inflate(run)
    finally:
        records.COUNT = count
    convbench(["verify", run.name, "--seal"], run.parent)
