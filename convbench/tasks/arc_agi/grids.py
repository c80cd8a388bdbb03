"""Grids of coloured cells: their limits, their text form, and ARC-AGI's files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from convbench.errors import DataError
from convbench.schema.chat import Message

Grid = tuple[tuple[int, ...], ...]
"""Rows from the top, cells from the left; colours 0 to 9."""
Style = Literal["lists", "digits", "places"]
"""How a grid is written: `[[0, 1], [2, 3]]`; a row of digits a line; or every cell with its
position, `r1c1=0 r1c2=1 r2c1=2 r2c2=3`."""
SIDE = 30
"""Most cells of a side."""
COLOURS = 10


@dataclass(frozen=True, slots=True)
class Pair:
    """An input and the output that the task's rule makes of it."""

    input: Grid
    output: Grid

    @property
    def side(self) -> int:
        """Return the longest side of both grids."""
        return max(len(self.input), len(self.input[0]), len(self.output), len(self.output[0]))


@dataclass(frozen=True, slots=True)
class Puzzle:
    """One question: demonstrations, and a test pair whose output is to be found."""

    shown: tuple[Pair, ...]
    test: Pair

    @property
    def side(self) -> int:
        """Return the longest side of all grids."""
        return max(pair.side for pair in (*self.shown, self.test))


def grid(value: Any) -> Grid:
    """Return nested lists as a grid. Raises ValueError that says what is wrong with them."""
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= SIDE:
        raise ValueError(f"a grid has 1 to {SIDE} rows")
    rows = []
    for row in value:
        if not isinstance(row, (list, tuple)) or not 1 <= len(row) <= SIDE:
            raise ValueError(f"a row has 1 to {SIDE} cells")
        if len(row) != len(value[0]):
            raise ValueError("rows differ in length")
        if any(type(cell) is not int or not 0 <= cell < COLOURS for cell in row):
            raise ValueError("a cell is a whole number from 0 to 9")
        rows.append(tuple(row))
    return tuple(rows)


def pair(value: Mapping[str, Any]) -> Pair:
    """Return a mapping with `input` and `output` as a pair. Raises ValueError for any other
    value."""
    if not isinstance(value, Mapping) or not {"input", "output"} <= set(value):
        raise ValueError("a pair has an input and an output")
    return Pair(grid(value["input"]), grid(value["output"]))


def written(one: Grid, style: Style = "lists") -> str:
    """Return a grid as text."""
    if style == "lists":
        return json.dumps([list(row) for row in one])
    if style == "places":
        return " ".join(
            f"r{down}c{right}={cell}"
            for down, row in enumerate(one, 1)
            for right, cell in enumerate(row, 1)
        )
    return "\n".join("".join(map(str, row)) for row in one)


_LISTS = re.compile(r"(?P<grid>\[\s*+\[[\d,\s\[\]]*\]\s*+\])|\[\s*+\[[\d,\s\[\]]*+")
_DIGITS = re.compile(r"(?P<grid>\d+(?:\n\d+)*)")
_PLACES = re.compile(r"(?P<grid>r\d\d?c\d\d?=\d(?: r\d\d?c\d\d?=\d)*)")
_FINDS = {"lists": _LISTS, "digits": _DIGITS, "places": _PLACES}


def read(text: str, style: Style = "lists") -> Grid | None:
    """Return the first grid in a text, or None if there is none."""
    tried = _FINDS[style].finditer(text[:20_000])
    found = next((one["grid"] for one in tried if one["grid"]), None)
    if found is None:
        return None
    try:
        if style == "lists":
            return grid(json.loads(found))
        if style == "places":
            return _placed(found)
        return grid([[int(cell) for cell in row] for row in found.split("\n")])
    except ValueError:
        return None


def _placed(text: str) -> Grid | None:
    """Return the grid of cells that are named one by one, or None if they are not in order or have
    gaps."""
    cells = [tuple(map(int, one)) for one in re.findall(r"r(\d+)c(\d+)=(\d)", text)]
    wide = max(right for _, right, _ in cells)
    rows = [cells[start : start + wide] for start in range(0, len(cells), wide)]
    found = grid([[cell for _, _, cell in row] for row in rows])
    return found if written(found, "places") == text else None


END = "#"
"""Marks the end of an output grid."""
SENTENCE = (
    "Each line shows a grid of colours from 0 to 9 and the grid that one and the same rule makes "
    f"of it, ended by {END}. Find the rule and apply it to the last grid; answer with the grid "
    "alone."
)


def prompt(puzzle: Puzzle, style: Style = "lists", sentence: str = SENTENCE) -> list[Message]:
    """Return the messages that ask for a puzzle's test output."""
    lines = [f"{written(p.input, style)} -> {written(p.output, style)}{END}" for p in puzzle.shown]
    system = "\n".join(([sentence] if sentence else []) + lines)
    user: Message = {"role": "user", "content": f"{written(puzzle.test.input, style)} -> "}
    return [{"role": "system", "content": system}, user] if system else [user]


def answer(grid: Grid, style: Style = "lists") -> str:
    """Return the reply that states an output grid."""
    return written(grid, style) + END


def heard(reply: str, style: Style = "lists") -> Grid | None:
    """Return the grid of a reply, up to its end mark, or None if there is none."""
    return read(reply.partition(END)[0], style)


SPLITS = {"training": "train", "evaluation": "test"}
"""The split of each of ARC-AGI's folders."""
MOST_PAIRS = 30
LARGEST = 4 << 20
"""Bytes of one file."""


def load(
    *, seed: int, folder: str | None = None, ids: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for each task of a folder that holds `training/ID.json` and, to test on,
    `evaluation/ID.json`: all of them, or those of `ids`. A file that is no task is rejected. Raises
    DataError for a missing folder or id."""
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
    """Return a task's row: demonstrations and test inputs that may be shown, hidden outputs. Raises
    ValueError for any other value."""
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
