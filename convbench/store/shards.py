"""Shards of a run: folders beside its `run.json`, each an ordinary run of some question groups.

    RUN/shards/plan.json    number of shards, tasks for each, and what each may spend
    RUN/shards/00007.0/     the records of shard 7; .3 once a third process had to begin anew
    RUN/shards/logs/        output of the processes

The newest folder of a shard counts (`store.shard_attempts`); a process that lost contact without
knowing it writes on into an older one that nobody reads.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import Field

from convbench.errors import RunError
from convbench.schema.base import FrozenModel
from convbench.store.jsonl import Appender, disk_error, numbered_lines, write_atomic
from convbench.store.parts import list_files
from convbench.store.shape import parse_object, read_model
from convbench.store.token_probs import end_of_frames
from convbench.util.regular import open_to_read

FOLDER, PLAN = "shards", "plan.json"
MOST = 100_000
"""Largest number of shards of one run."""
PART = re.compile(r"(\d{5})\.(\d{1,6})")
"""Name of a shard's folder: index, attempt."""
GREW = re.compile(r"([A-Za-z][\w-]*?)(?:-\d{5,9})?(\.jsonl|\.bin)(?:\.zst)?")
"""Name of a file of records, or of one of its parts."""
BUFFER = 64 << 20
"""Bytes of records that are held in memory while they are spread."""


class ShardTask(FrozenModel):
    """A task for every shard."""

    name: str = Field(pattern=r"^(build|candidates|judge-[0-9a-f]{4,64})$")
    """`build`, `candidates`, or `judge-` and the judge's fingerprint."""
    judge: str | None = Field(default=None, max_length=300)
    """The judge's name; None for other tasks."""


class ShardLimit(FrozenModel):
    """What a shard may spend in total, earlier spending included; null is no limit."""

    usd: float | None = Field(default=None, ge=0, le=1e12)
    """Dollars."""
    tokens: int | None = Field(default=None, ge=0, le=1 << 53)
    """Tokens."""


class ShardPlan(FrozenModel):
    """Number of shards of a run, the tasks for each, and their limits."""

    format: Literal[1, 2] = 2
    """Version of this layout; 1 is that of convbench 0.1."""
    count: int = Field(ge=1, le=MOST)
    """Number of shards."""
    tasks: tuple[ShardTask, ...] = Field(default=(), max_length=256)
    """Tasks for each shard, in this order."""
    limits: dict[int, ShardLimit] = Field(default_factory=dict, max_length=MOST)
    """What each shard may spend, by index."""
    lease_s: float | None = Field(default=None, exclude=True)
    """Part of format 1, without effect."""


def shard_of(group: str, count: int) -> int:
    """Return the index, from 0 to `count` - 1, of the shard for a group: the same on every
    machine."""
    digest = hashlib.blake2b(group.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def is_sharded(run: Path) -> bool:
    """Return True if a run has `shards/plan.json`, so that its records are in shards."""
    return (run / FOLDER / PLAN).is_file()


def read_plan(run: Path) -> ShardPlan:
    """Return the plan of a sharded run. Raises RunError if it has none or a damaged one."""
    return read_model(run / FOLDER / PLAN, ShardPlan)


def write_plan(run: Path, plan: ShardPlan) -> None:
    """Write the plan of a sharded run to `shards/plan.json`, in place of an earlier one.

    The folder must exist. Raises RunError if it cannot be written.
    """
    write_atomic(run / FOLDER / PLAN, plan.model_dump_json(indent=1).encode() + b"\n")


def newest_attempts(folder: Path, count: int) -> dict[int, int]:
    """Return the number of the newest attempt by shard index, of shards below `count` with a folder
    here.

    A missing folder gives an empty dict. Raises RunError if it cannot be read.
    """
    attempts: dict[int, int] = {}
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return attempts
    except OSError as error:
        raise RunError(f"{folder}: cannot be read: {error.strerror}") from None
    for name in names:
        if (match := PART.fullmatch(name)) and (index := int(match[1])) < count:
            attempts[index] = max(attempts.get(index, 0), int(match[2]))
    return attempts


def attempt_folder(run: Path, index: int, number: int) -> Path:
    """Return the path of an attempt at a shard, such as `RUN/shards/00007.2`. It need not exist."""
    return run / FOLDER / f"{index:05}.{number}"


def shard_folders(run: Path) -> dict[int, Path]:
    """Return the newest folder of each shard by ascending index, empty for a run without shards.

    Raises RunError for a damaged plan, and for a link or a file in place of a folder.
    """
    if not is_sharded(run):
        return {}
    attempts = newest_attempts(run / FOLDER, read_plan(run).count)
    folders = {index: attempt_folder(run, index, attempts[index]) for index in sorted(attempts)}
    for folder in folders.values():
        if folder.is_symlink() or not folder.is_dir():
            raise RunError(f"{folder}: found a link or no folder; expected the shard's own folder")
    return folders


def create_shards(
    run: Path,
    plan: ShardPlan,
    groups: Mapping[str, str],
) -> None:
    """Spread a run and its records over the shards of a plan; `groups` is group by example_id.

    The run keeps its questions; its conversations, verdicts and journals are then in the shards
    only. If the process is killed before the shards have their folder, the run stays as it was and
    may be spread again; if it is killed after that, some of these files may stay in the run too.
    Raise RunError for a record of an unknown question, for a run that is already spread, or if the
    disk cannot be written. A journal's calls of unknown questions go to shard 0.
    """
    target, space = run / FOLDER, run / f".{FOLDER}.tmp"
    of_example = {name: shard_of(group, plan.count) for name, group in groups.items()}
    try:
        shutil.rmtree(space, ignore_errors=True)
        space.mkdir()
        for index in range(plan.count):
            folder = space / f"{index:05}.0"
            folder.mkdir()
            _link_or_copy(run / "run.json", folder / "run.json")
        spread_files = _spread_all(run, space, of_example)
        (space / PLAN).write_bytes(plan.model_dump_json(indent=1).encode() + b"\n")
        space.rename(target)
        for name in spread_files:
            for file in list_files(run / name):
                file.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(target, error) from None


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _spread_all(run: Path, space: Path, of_example: Mapping[str, int]) -> list[str]:
    """Spread every file of records over shards. Return the names of those that the run itself no
    longer needs."""
    spread_file(run / "examples.jsonl", space, "example_id", of_example.get)
    of_talk: dict[str, int] = {}

    def conversation_shard(name: str) -> int | None:
        example, _, conversation = name.partition("\0")
        if example in of_example:
            of_talk[conversation] = of_example[example]
        return of_example.get(example)

    spread_file(
        run / "conversations.jsonl", space, ("example_id", "conversation_id"), conversation_shard
    )
    spread_file(run / "verdicts.jsonl", space, "conversation_id", of_talk.get)
    of_attempt: dict[str, int] = {}

    def call_shard(key: str) -> int | None:
        if key.startswith("judge/"):
            return of_talk.get(key.split("/", 2)[-1].split("#")[0], 0)
        return of_example.get(key.rpartition("#")[0], 0)

    def attempt_shard(name: str) -> int | None:
        mark, _, key = name.partition("\0")
        return of_attempt.setdefault(mark, (call_shard(key) if key else 0) or 0)

    spread_file(run / "calls.jsonl", space, "key", call_shard, strict=False)
    spread_file(run / "attempts.jsonl", space, ("attempt", "key"), attempt_shard, strict=False)
    return ["conversations.jsonl", "verdicts.jsonl", "calls.jsonl", "attempts.jsonl"]


def spread_file(
    file: Path,
    space: Path,
    name: str | tuple[str, str],
    shard: Callable[[str], int | None],
    *,
    strict: bool = True,
) -> None:
    """Append each record of a file to the file of its shard; `shard` returns the index for the
    fields `name`, joined by NUL. Raises RunError for a record of no shard; with `strict` false, for
    journals, unreadable lines are left out."""
    names = (name,) if isinstance(name, str) else name
    held: dict[int, list[bytes]] = {}
    size = 0
    for number, line in numbered_lines(file):
        where = f"{file}:{number}"
        try:
            record = parse_object(where, line, names if strict else ())
        except RunError:
            if strict:
                raise
            continue
        index = shard("\0".join(str(record.get(field) or "") for field in names))
        if index is None:
            raise RunError(f"{where}: found a record whose question is not in this run")
        held.setdefault(index, []).append(line)
        size += len(line)
        if size > BUFFER:
            _write_held(held, space, file.name)
            size = 0
    _write_held(held, space, file.name)


def _write_held(held: dict[int, list[bytes]], space: Path, name: str) -> None:
    for index, records in held.items():
        with (space / f"{index:05}.0" / name).open("ab") as target:
            target.writelines(records)
    held.clear()


def merge_shards(run: Path) -> dict[str, int]:
    """Move the records of all shards into the run's own folder and remove the folder of shards.

    Return the number of lines by file name, 0 for a binary file; questions and seals are not moved.
    If the process is killed while it copies, the run stays as it was. Raises RunError if the disk
    cannot be written.
    """
    space = run / ".merged.tmp"
    counts: dict[str, int] = {}
    try:
        shutil.rmtree(space, ignore_errors=True)
        space.mkdir()
        folders = shard_folders(run)
        for name in _record_names(folders.values()):
            sources = [run / name] if name != "conversations.jsonl" else []
            sources += [folder / name for folder in folders.values()]
            counts[name] = _join_files(sources, space / name)
        for name in counts:
            for file in list_files(run / name):
                file.unlink()
            for file in list_files(space / name):
                file.replace(run / file.name)
        old = run / f".{FOLDER}.merged"
        shutil.rmtree(old, ignore_errors=True)
        (run / FOLDER).rename(old)
        shutil.rmtree(old)
        space.rmdir()
    except OSError as error:
        raise disk_error(run, error) from None
    return counts


def _record_names(folders: Iterable[Path]) -> list[str]:
    """Return the names of the files of records in shards, without questions and seals."""
    names: set[str] = set()
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = GREW.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    names.add(match[1] + match[2])
    return sorted(names - {"examples.jsonl", "seals.jsonl"})


def _join_files(sources: Iterable[Path], target: Path) -> int:
    """Concatenate files, each up to its last complete record. Return the number of lines, 0 for a
    binary file."""
    count = 0
    if target.suffix == ".bin":
        with target.open("wb") as file:
            for source in sources:
                end = end_of_frames(source)
                with suppress(FileNotFoundError), open_to_read(source) as stream:
                    while end > 0 and (data := stream.read(min(end, 1 << 20))):
                        end -= file.write(data)
        return count
    with Appender(target) as appended:
        for source in sources:
            for _, line in numbered_lines(source):
                appended.write(line.rstrip(b"\n"))
                count += 1
    return count


def is_shard_folder(folder: Path) -> bool:
    """Return True if a folder is named as a shard's attempt in a folder `shards`.

    It need not exist.
    """
    return folder.parent.name == FOLDER and PART.fullmatch(folder.name) is not None


def is_superseded(folder: Path) -> bool:
    """Return True if a folder is an attempt at a shard, and a later attempt lies beside it.

    False unless it is named as an attempt in a folder named `shards`. It need not exist; without
    its parent it is not superseded. Raise RunError if the parent exists but cannot be read.
    """
    if not is_shard_folder(folder):
        return False
    index, number = map(int, folder.name.split("."))
    return newest_attempts(folder.parent, MOST).get(index, number) > number
