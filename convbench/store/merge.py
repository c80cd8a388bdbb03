"""Parts of a question set, each in a run of its own, and the run that joins them."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from convbench.errors import RunError, UsageError
from convbench.store.jsonl import Appender, numbered_lines
from convbench.store.run import Run

SHARD = "shard"
"""Key in a manifest's `extra` of the part of the questions that a run has, `I/N`."""
FOLDERS = ("judges", "media")


def parse_shard(typed: str) -> tuple[int, int]:
    """Return (index, count) of `--shard I/N`. Raises UsageError if it names no part."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", typed, re.ASCII)
    if match is None or not int(match[1]) < int(match[2]):
        raise UsageError(f"--shard {typed[:40]}: expected I/N, I from 0 to N-1, such as 7/200")
    return int(match[1]), int(match[2])


def shard_of(group: str, count: int) -> int:
    """Return the part, from 0 to `count` - 1, that a group belongs to: the same on every machine,
    so that questions of one group stay together."""
    digest = hashlib.blake2b(group.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def merge_runs(runs: Sequence[Run], target: Path) -> Run:
    """Join runs of equal specs in a new run and return it; the runs stay as they are.

    Questions are taken once; conversations, verdicts and journals are put one behind the other,
    with judges and media. Raises RunError if the specs differ, if two runs hold the same
    conversation, or if `target` exists.
    """
    _refuse_unequal(runs)
    if target.exists():
        raise RunError(f"--run {target}: exists already; expected a new directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        for run in runs:
            held.enter_context(run.read_lock("merging this run"))
        made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
        held.callback(shutil.rmtree, made, ignore_errors=True)
        for name in sorted({path.name for run in runs for path in run.path.glob("*.jsonl")}):
            _join_records([run.path / name for run in runs], made / name)
        for name in FOLDERS:
            for run in runs:
                if (run.path / name).is_dir():
                    shutil.copytree(run.path / name, made / name, dirs_exist_ok=True)
        first = runs[0].manifest
        extra = {key: value for key, value in first.extra.items() if key != SHARD}
        Run.write_manifest(made, first.model_copy(update={"extra": extra}))
        made.chmod(0o755)
        made.rename(target)
    return Run.open(target)


def _refuse_unequal(runs: Sequence[Run]) -> None:
    first, *others = runs
    for other in others:
        for name, mark in first.manifest.fingerprints.items():
            if other.manifest.fingerprints.get(name) != mark:
                raise RunError(
                    f"{other.path}: its {name} differs from that of {first.path}; expected runs "
                    "of one build, such as those of --shard 0/4 to 3/4"
                )
    seen: dict[str, Path] = {}
    for run in runs:
        for conversation in run.conversations():
            if (before := seen.setdefault(conversation.key, run.path)) != run.path:
                raise RunError(
                    f"{run.path}: found conversation {conversation.key} of {before} again; "
                    "expected runs of different questions"
                )


def _join_records(sources: Sequence[Path], target: Path) -> None:
    """Write the lines of files one behind the other; questions that occur again are left out."""
    seen: set[bytes] | None = set() if target.name == "examples.jsonl" else None
    with Appender(target) as file:
        for source in sources:
            for _, line in numbered_lines(source):
                if seen is not None:
                    if line in seen:
                        continue
                    seen.add(line)
                file.write(line.rstrip(b"\n"))
