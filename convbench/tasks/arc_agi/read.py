"""ARC-AGI's JSON files as rows of a task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from convbench.errors import DataError
from convbench.tasks.arc_agi.grids import Grid, pair, written

SPLITS = {"training": "train", "evaluation": "test"}
"""ARC-AGI's folders, and the split that each is."""
MOST_PAIRS = 30
LARGEST = 4 << 20
"""Bytes of one file."""


def load(
    *, seed: int, folder: str | None = None, ids: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for each task of a folder that holds `training/ID.json` and, to test on,
    `evaluation/ID.json`; all of them, or those of `ids`. A file that is no task is rejected."""
    del seed  # every task is yielded, in the order of the ids
    wanted = {str(name) for name in ids}
    found = _files(folder)
    missing = wanted - {path.stem for path, _ in found}
    if missing:
        raise DataError(
            f"{folder}: found no task {sorted(missing)[0]!r} ({len(missing)} of {len(wanted)} ids "
            f"are not there); expected files such as {found[0][0].parent.name}/{found[0][0].name}"
        )
    for path, split in found:
        if not wanted or path.stem in wanted:
            try:
                yield row(path.stem, split, _json(path))
            except (ValueError, RecursionError) as error:
                yield {"reject": f"no task of grids ({str(error)[:60]})"}


def row(name: str, split: str | None, task: Any) -> dict[str, Any]:
    """Return a task's row: demonstrations and test inputs that may be shown, hidden outputs.
    ValueError where it is no task."""
    if not isinstance(task, dict):
        raise ValueError("expected an object")
    parts = [task.get("train"), task.get("test")]
    for part in parts:
        if not isinstance(part, list) or not 1 <= len(part) <= MOST_PAIRS:
            raise ValueError(f"train and test hold 1 to {MOST_PAIRS} pairs each")
    shown, asked = ([pair(one) for one in part or ()] for part in parts)
    return {
        "id": name,
        "split": split,
        "question": f"ARC task {name}",
        "demonstrations": [{"input": one.input, "output": one.output} for one in shown],
        "tests": [one.input for one in asked],
        "outputs": [one.output for one in asked],
        "shown": "\n\n".join(_shown(one.input, one.output) for one in shown),
    }


def _shown(before: Grid, after: Grid) -> str:
    """Return a demonstration as rows of digits."""
    return f"Input:\n{written(before, 'digits')}\nOutput:\n{written(after, 'digits')}"


def _files(folder: str | None) -> list[tuple[Path, str]]:
    if folder is None:
        raise DataError(
            "task arc-agi: found no folder of tasks; expected ARC-AGI's data folder (get it: git "
            "clone https://github.com/fchollet/ARC-AGI), named by --set "
            "task.source.args.folder=ARC-AGI/data"
        )
    root = Path(folder).expanduser()
    found = [
        (path, split)
        for name, split in SPLITS.items()
        for path in sorted((root / name).glob("*.json"))
        if path.is_file()
    ]
    if not found:
        raise DataError(
            f"{root}: found no tasks; expected JSON files in {root / 'training'} and, to test on, "
            f"in {root / 'evaluation'}"
        )
    return found


def _json(path: Path) -> Any:
    if path.stat().st_size > LARGEST:
        raise ValueError(f"more than {LARGEST >> 20} MiB")
    return json.loads(path.read_text())
