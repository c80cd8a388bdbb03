"""Training rows in an Arrow file, for several processes on one machine: the first process makes
them from the log and writes them, and all processes read them memory-mapped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from convbench.learn.rows import PairRow, PairRows, TrainingRow, TrainingRows
from convbench.learn.tokens import TokenRow
from convbench.store.jsonl import disk_error, write_atomic
from convbench.store.lazy_sequence import LazySequence

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = "CONVBENCH_ROWS"
"""Environment variable: the folder for the rows of a training's processes."""
FILE, ABOUT = "rows.arrow", "about.json"
"""In that folder: the rows, then (written last) their counts and figures."""
AT_ONCE = 1_024
"""Rows of one record batch."""
POLL_S = 0.1
T = TypeVar("T")
R = TypeVar("R", TrainingRows, PairRows)


@dataclass(frozen=True)
class StoredData(Generic[R]):
    """The stored data of a training, as each of its processes reads it."""

    rows: R
    figures: dict[str, Any]
    """Figures on the data for `training.json`."""
    flat_tasks: float = 0.0
    """Share of tasks whose rewards do not differ."""


class ArrowRows(LazySequence[T]):
    """Rows of an Arrow table, each built at access."""

    def __init__(self, table: pa.Table, make: Callable[..., T]) -> None:
        self._table, self._make = table, make

    def __len__(self) -> int:
        count: int = self._table.num_rows
        return count

    def _make_item(self, at: int) -> T:
        return self._make(*self._table.slice(at, 1).to_pylist()[0].values())


def write_data(folder: Path, data: StoredData[Any]) -> None:
    """Write a training's data into a folder: `rows.arrow`, then `about.json`.

    Raise RunError if it cannot be written.
    """
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    if isinstance(data.rows, PairRows):
        kinds = [pa.string(), ids, ids, ids]
        values = [
            (row.task, row.prompt_ids, row.chosen_ids, row.rejected_ids) for row in data.rows.rows
        ]
    else:
        kinds = [pa.string(), pa.int32(), pa.int32(), ids, pa.list_(pa.int8())]
        kinds += [pa.float64(), pa.bool_()]
        values = [_row_values(row) for row in data.rows.rows]
    schema = pa.schema([(str(number), kind) for number, kind in enumerate(kinds)])
    try:
        with pa.OSFile(str(folder / FILE), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for start in range(0, len(values), AT_ONCE):
                columns = zip(*values[start : start + AT_ONCE], strict=True)
                arrays = [pa.array(c, kind) for c, kind in zip(columns, kinds, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
    except OSError as error:
        raise disk_error(folder / FILE, error) from None
    about = {
        "pairs": isinstance(data.rows, PairRows),
        "counts": data.rows.counts,
        "figures": data.figures,
        "flat_tasks": data.flat_tasks,
    }
    write_atomic(folder / ABOUT, json.dumps(about).encode())


def read_data(folder: Path) -> StoredData[Any]:
    """Wait until a training's first process has written the data, and return it. If that process
    fails, the launcher ends those that wait."""
    import pyarrow as pa

    while not (folder / ABOUT).exists():
        time.sleep(POLL_S)
    about = json.loads((folder / ABOUT).read_bytes())
    table = pa.ipc.open_file(pa.memory_map(str(folder / FILE))).read_all()
    rows = (
        PairRows(ArrowRows(table, PairRow), about["counts"])
        if about["pairs"]
        else TrainingRows(ArrowRows(table, _row_of), about["counts"])
    )
    return StoredData(rows, about["figures"], about["flat_tasks"])


def _row_values(row: TrainingRow) -> tuple[Any, ...]:
    """Return a row's values in the order of the file's columns."""
    tokens = row.tokens
    known = row.conversation_id, row.part, row.parts
    return *known, tokens.ids, tokens.mask, row.weight, row.unrewarded


def _row_of(
    name: str,
    part: int,
    parts: int,
    ids: list[int],
    mask: list[int],
    weight: float,
    unrewarded: bool,
) -> TrainingRow:
    """Return the row of one line of the file."""
    return TrainingRow(name, part, parts, TokenRow(tuple(ids), tuple(mask)), weight, unrewarded)
