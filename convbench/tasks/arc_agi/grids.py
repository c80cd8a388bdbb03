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
MOST_SIDE = 30
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


def parse_grid(value: Any) -> Grid:
    """Return nested lists as a grid. Raises ValueError that says what is wrong with them."""
    if not isinstance(value, (list, tuple)) or not 1 <= len(value) <= MOST_SIDE:
        raise ValueError(f"a grid has 1 to {MOST_SIDE} rows")
    rows = []
    for row in value:
        if not isinstance(row, (list, tuple)) or not 1 <= len(row) <= MOST_SIDE:
            raise ValueError(f"a row has 1 to {MOST_SIDE} cells")
        if len(row) != len(value[0]):
            raise ValueError("rows differ in length")
        if any(type(cell) is not int or not 0 <= cell < COLOURS for cell in row):
            raise ValueError("a cell is a whole number from 0 to 9")
        rows.append(tuple(row))
    return tuple(rows)


def parse_pair(value: Mapping[str, Any]) -> Pair:
    """Return a mapping with `input` and `output` as a pair. Raises ValueError for any other
    value."""
    if not isinstance(value, Mapping) or not {"input", "output"} <= set(value):
        raise ValueError("a pair has an input and an output")
    return Pair(parse_grid(value["input"]), parse_grid(value["output"]))


def format_grid(grid: Grid, style: Style = "lists") -> str:
    """Return a grid as text."""
    if style == "lists":
        return json.dumps([list(row) for row in grid])
    if style == "places":
        return " ".join(
            f"r{down}c{right}={cell}"
            for down, row in enumerate(grid, 1)
            for right, cell in enumerate(row, 1)
        )
    return "\n".join("".join(map(str, row)) for row in grid)


_LISTS = re.compile(r"(?P<grid>\[\s*+\[[\d,\s\[\]]*\]\s*+\])|\[\s*+\[[\d,\s\[\]]*+")
_DIGITS = re.compile(r"(?P<grid>\d+(?:\n\d+)*)")
_PLACES = re.compile(r"(?P<grid>r\d\d?c\d\d?=\d(?: r\d\d?c\d\d?=\d)*)")
_FINDS = {"lists": _LISTS, "digits": _DIGITS, "places": _PLACES}


def find_grid(text: str, style: Style = "lists") -> Grid | None:
    """Return the first grid in a text, or None if there is none."""
    tried = _FINDS[style].finditer(text[:20_000])
    grid_text = next((match["grid"] for match in tried if match["grid"]), None)
    if grid_text is None:
        return None
    try:
        if style == "lists":
            return parse_grid(json.loads(grid_text))
        if style == "places":
            return _parse_places(grid_text)
        return parse_grid([[int(cell) for cell in row] for row in grid_text.split("\n")])
    except ValueError:
        return None


def _parse_places(text: str) -> Grid | None:
    """Return the grid of cells that are named one by one, or None if they are not in order or have
    gaps."""
    cells = [tuple(map(int, numbers)) for numbers in re.findall(r"r(\d+)c(\d+)=(\d)", text)]
    wide = max(right for _, right, _ in cells)
    rows = [cells[start : start + wide] for start in range(0, len(cells), wide)]
    parsed = parse_grid([[cell for _, _, cell in row] for row in rows])
    return parsed if format_grid(parsed, "places") == text else None


END_MARK = "#"
"""Marks the end of an output grid."""
INSTRUCTION = (
    "Each line shows a grid of colours from 0 to 9 and the grid that one and the same rule makes "
    f"of it, ended by {END_MARK}. Find the rule and apply it to the last grid; answer with the "
    "grid "
    "alone."
)


def puzzle_prompt(
    puzzle: Puzzle, style: Style = "lists", sentence: str = INSTRUCTION
) -> list[Message]:
    """Return the messages that ask for a puzzle's test output."""
    lines = [
        f"{format_grid(p.input, style)} -> {format_grid(p.output, style)}{END_MARK}"
        for p in puzzle.shown
    ]
    system = "\n".join(([sentence] if sentence else []) + lines)
    user: Message = {"role": "user", "content": f"{format_grid(puzzle.test.input, style)} -> "}
    return [{"role": "system", "content": system}, user] if system else [user]


def format_answer(grid: Grid, style: Style = "lists") -> str:
    """Return the reply that states an output grid."""
    return format_grid(grid, style) + END_MARK


def read_reply(reply: str, style: Style = "lists") -> Grid | None:
    """Return the grid of a reply, up to its end mark, or None if there is none."""
    return find_grid(reply.partition(END_MARK)[0], style)


SPLITS = {"training": "train", "evaluation": "test"}
"""The split of each of ARC-AGI's folders."""
MOST_PAIRS = 30
MOST_FILE_BYTES = 4 << 20
"""Bytes of one file."""


def load(
    *, seed: int, folder: str | None = None, ids: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield a row for each file `training/ID.json` and `evaluation/ID.json` of a folder.

    They have split train and test. With `ids` only those tasks are yielded. The order is that of
    the file names, training first; `seed` is unused. A file that is no task gives the row
    `{"reject": why}`. Raise DataError, once rows are taken, for a missing folder or id.
    """
    del seed  # every task is yielded, in the order of the ids
    names = {str(name) for name in ids}
    files = _task_files(folder)
    missing = names - {path.stem for path, _ in files}
    if missing:
        raise DataError(
            f"{folder}: found no task {sorted(missing)[0]!r} ({len(missing)} of {len(names)} ids "
            f"are missing); expected files such as {files[0][0].parent.name}/{files[0][0].name}"
        )
    for path, split in files:
        if not names or path.stem in names:
            try:
                yield task_row(path.stem, split, _read_json(path))
            except (ValueError, RecursionError) as error:
                yield {"reject": f"no task of grids ({str(error)[:60]})"}


def task_row(name: str, split: str | None, task: Any) -> dict[str, Any]:
    """Return a task's row: demonstrations and test inputs that may be shown, hidden outputs. Raises
    ValueError for any other value."""
    if not isinstance(task, dict):
        raise ValueError("expected an object")
    parts = [task.get("train"), task.get("test")]
    for part in parts:
        if not isinstance(part, list) or not 1 <= len(part) <= MOST_PAIRS:
            raise ValueError(f"train and test hold 1 to {MOST_PAIRS} pairs each")
    shown, tests = ([parse_pair(entry) for entry in part or ()] for part in parts)
    return {
        "id": name,
        "split": split,
        "question": f"ARC task {name}",
        "demonstrations": [{"input": entry.input, "output": entry.output} for entry in shown],
        "tests": [entry.input for entry in tests],
        "outputs": [entry.output for entry in tests],
        "shown": "\n\n".join(_format_demonstration(entry.input, entry.output) for entry in shown),
    }


def _format_demonstration(before: Grid, after: Grid) -> str:
    """Return a demonstration as rows of digits."""
    return f"Input:\n{format_grid(before, 'digits')}\nOutput:\n{format_grid(after, 'digits')}"


def _task_files(folder: str | None) -> list[tuple[Path, str]]:
    if folder is None:
        raise DataError(
            "task arc-agi: found no folder of tasks; expected ARC-AGI's data folder (get it: git "
            "clone https://github.com/fchollet/ARC-AGI), named by --set "
            "task.source.args.folder=ARC-AGI/data"
        )
    root = Path(folder).expanduser()
    files = [
        (path, split)
        for name, split in SPLITS.items()
        for path in sorted((root / name).glob("*.json"))
        if path.is_file()
    ]
    if not files:
        raise DataError(
            f"{root}: found no tasks; expected JSON files in {root / 'training'} and, to test on, "
            f"in {root / 'evaluation'}"
        )
    return files


def _read_json(path: Path) -> Any:
    if path.stat().st_size > MOST_FILE_BYTES:
        raise ValueError(f"more than {MOST_FILE_BYTES >> 20} MiB")
    return json.loads(path.read_text())
