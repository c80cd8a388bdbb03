"""Load a task's examples: read rows, make questions, count rejected rows, draw."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench.catalog import find_function
from convbench.errors import DataError
from convbench.schema import Example, TaskSpec, fingerprint
from convbench.schema.task import SPLITS
from convbench.sources.rows import SourceRows, open_rows, row_bytes
from convbench.store.limits import limit_address_space
from convbench.store.numbered import NameNumbers
from convbench.store.spilled import SpilledBytes
from convbench.tasks.draw import (
    DrawnExamples,
    QuestionPool,
    choose_questions,
    example_of,
    text_digest,
)
from convbench.tasks.mapping import TaskQuestion, make_question
from convbench.templates import parse_expression
from convbench.util.plain_data import TemplateRefusal

MEMORY_BYTES = 4 << 30
"""Bytes that reading a source may take on top of what the process uses."""
MANY = 4096
"""Most questions held in memory; more are spilled to a file."""
MOST_ROW_BYTES = 1 << 30
"""Most bytes of the rows of drawn questions."""


@dataclass(frozen=True)
class LoadResult:
    """A task's examples and how they came to be."""

    examples: Sequence[Example]
    revision: str
    """Commit of the source, or a hash of its rows."""
    rows: int
    """Raw rows read."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rows that gave no question, by reason."""


def load_examples(task: TaskSpec, seed: int, *, downloaded: bool = False) -> LoadResult:
    """Return the drawn examples of a task in the order of the draw, with the source's revision and
    the counts of rows.

    Rows are read twice unless a function makes them, so that memory holds only the drawn questions.
    Nothing is written but temporary files and caches. `downloaded` limits functions to those that
    convbench ships for specs. Raise HubError, DataError or SpecError in one line that says what to
    do.
    """
    try:
        with limit_address_space(MEMORY_BYTES):
            return _load_drawn(task, seed, downloaded)
    except MemoryError:
        raise DataError(
            f"task {task.name}: its rows take more than {MEMORY_BYTES >> 20:,} MiB of memory; "
            "expected "
            "less; draw fewer (--tasks N), or make the rows smaller"
        ) from None


def _load_drawn(task: TaskSpec, seed: int, downloaded: bool) -> LoadResult:
    rows, revision = _source_rows(task, seed, downloaded)
    again = isinstance(rows, SourceRows) and not task.rows.maker
    counted = (
        rows.select_columns(_needed_columns(task))
        if again and isinstance(rows, SourceRows)
        else _CountedRows(rows)
    )
    maker_rows: Iterable[Mapping[str, Any]] = counted
    if task.rows.maker:
        maker_rows = find_function(task.rows.maker, downloaded=downloaded)(counted, seed=seed)
    rejected: Counter[str] = Counter()
    pool, places, held = _read_questions(task, maker_rows, rejected, hold=not again)
    try:
        chosen, splits = choose_questions(task, pool, seed, rejected)
    except DataError as error:
        left = ", ".join(f"{count} {why}" for why, count in sorted(rejected.items()))
        raise DataError(
            f"{error} (of {counted.count} rows: {left})" if left else str(error)
        ) from None
    count = counted.count
    examples: Sequence[Example] = (
        _drawn_examples(task, counted, pool.keys, places, chosen, splits)
        if again
        else [example_of(task, held[n], SPLITS[s]) for n, s in zip(chosen, splits, strict=True)]
    )
    return LoadResult(examples, revision, count, dict(rejected))


class _CountedRows:
    """Rows from a function, counted as they are read."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows, self.count = rows, 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        self.count = 0
        for row in self.rows:
            self.count += 1
            yield row


def _read_questions(
    task: TaskSpec, rows: Iterable[Mapping[str, Any]], rejected: Counter[str], *, hold: bool
) -> tuple[QuestionPool, array[int], list[TaskQuestion]]:
    """Return what the draw depends on, the position of each question's row and, if `hold`, the
    questions."""
    pool, places, held, total = QuestionPool(), array("q"), list[TaskQuestion](), 0
    marks = SpilledBytes()
    for position, row in enumerate(rows):
        if "reject" in row:
            rejected[str(row["reject"])] += 1
            continue
        item = make_question(task, row)
        if isinstance(item, str):
            rejected[item] += 1
            continue
        number = pool.add(item)
        mark = (
            text_digest(repr(item)) if task.rows.key else b""
        )  # else the key is a hash of the question
        if number == len(places):
            places.append(position)
            marks.add(mark)
            if hold:
                total = _add_weight(task, total, row)
                held.append(item)
            continue
        if mark != marks.read_range(number * len(mark), (number + 1) * len(mark)):
            raise DataError(
                f"task {task.name}: rows.key: two rows have the key {item.key!r}; expected "
                "a key of its own for each"
            )
        rejected["repeated"] += 1
    return pool, places, held


def _drawn_examples(
    task: TaskSpec,
    rows: Iterable[Mapping[str, Any]],
    keys: NameNumbers,
    places: Iterable[int],
    chosen: Sequence[int],
    splits: bytes,
) -> Sequence[Example]:
    """Return the complete drawn examples, read again from their rows. `places` are the positions of
    the questions' rows, `splits` those of the chosen ones. Many are spilled to a file."""
    drawn = array("i", [-1]) * len(keys)
    """Index of each question in the draw, or -1 if it is not drawn."""
    for at, number in enumerate(chosen):
        drawn[number] = at
    examples, total = DrawnExamples(len(chosen)), 0
    pending = ((n, position) for n, position in enumerate(places) if drawn[n] >= 0)
    nothing = (0, -1)
    number, wanted_at = next(pending, nothing)
    for position, row in enumerate(rows):
        if wanted_at < 0:
            break
        if position == wanted_at:
            total = _add_weight(task, total, row)
            item = make_question(task, row)
            if isinstance(item, str) or item.key != keys[number]:
                break
            at = drawn[number]
            examples.add(at, example_of(task, item, SPLITS[splits[at]]))
            number, wanted_at = next(pending, nothing)
    if wanted_at >= 0:
        raise DataError(f"task {task.name}: the rows changed while they were read")
    return examples if len(examples) > MANY else list(examples)


def _add_weight(task: TaskSpec, total: int, row: Mapping[str, Any]) -> int:
    """Return the bytes held with one more row. Raises DataError for too many."""
    total += row_bytes(row, f"task {task.name}")
    if total > MOST_ROW_BYTES:
        raise DataError(
            f"task {task.name}: the questions take more than {MOST_ROW_BYTES >> 20:,} MiB; "
            "expected less; "
            "draw fewer: --tasks N"
        )
    return total


def _needed_columns(task: TaskSpec) -> set[str] | None:
    """Return the columns that the task's expressions name, or None if they may name any."""
    rows = task.rows
    expressions = (
        rows.where,
        rows.key,
        rows.group,
        rows.split,
        rows.question,
        rows.choices,
        rows.answer,
    )
    texts = [text for text in (*expressions, *rows.inputs.values(), *rows.hidden.values()) if text]
    try:
        names = {name for text in texts for name in parse_expression(text).names}
    except TemplateRefusal:  # reported with its key when a question is made
        return None
    return None if "row" in names else names


def _source_rows(
    task: TaskSpec, seed: int, downloaded: bool
) -> tuple[SourceRows | list[dict[str, Any]], str]:
    if task.source.rows:
        make = find_function(task.source.rows, downloaded=downloaded)
        rows = [dict(row) for row in make(seed=seed, **task.source.args)]
        return rows, fingerprint(rows)
    return open_rows(task.source)
