"""Load a task's examples: read rows, make questions, count rejected rows, draw."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convbench.catalog import function
from convbench.errors import DataError
from convbench.hub.rows import Rows, open_rows, weight
from convbench.plain_data import Refused
from convbench.schema import Example, TaskSpec, fingerprint
from convbench.store.limits import address_space
from convbench.store.numbered import Numbered
from convbench.store.spilled import Bytes
from convbench.tasks.draw import ORDER, Drawn, Found, choose, digest, example_of
from convbench.tasks.mapping import Question, question
from convbench.templates import expression

MEMORY = 4 << 30
"""Bytes that reading a source may take on top of what the process uses."""
MANY = 4096
"""Most questions held in memory; more are spilled to a file."""
KEPT = 1 << 30
"""Most bytes of the rows of drawn questions."""


@dataclass(frozen=True)
class Loaded:
    """A task's examples and how they came to be."""

    examples: Sequence[Example]
    revision: str
    """Commit of the source, or a hash of its rows."""
    rows: int
    """Raw rows read."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rows that gave no question, by reason."""


def load_examples(task: TaskSpec, seed: int, *, downloaded: bool = False) -> Loaded:
    """Return the drawn examples of a task.

    Rows are read twice unless a function makes them: once for what the draw depends on, once for
    the drawn questions, so that memory holds no more than these. Writes nothing. Raises HubError or
    DataError in one line that says what to do.
    """
    try:
        with address_space(MEMORY):
            return _load(task, seed, downloaded)
    except MemoryError:
        raise DataError(
            f"task {task.name}: its rows take more than {MEMORY >> 20:,} MiB of memory; expected "
            "less; draw fewer (--tasks N), or make the rows smaller"
        ) from None


def _load(task: TaskSpec, seed: int, downloaded: bool) -> Loaded:
    rows, revision = _rows(task, seed, downloaded)
    again = isinstance(rows, Rows) and not task.rows.maker
    counted = rows.only(_columns(task)) if again and isinstance(rows, Rows) else _Counted(rows)
    made: Iterable[Mapping[str, Any]] = counted
    if task.rows.maker:
        made = function(task.rows.maker, downloaded=downloaded)(counted, seed=seed)
    rejected: Counter[str] = Counter()
    found, places, held = _questions(task, made, rejected, hold=not again)
    try:
        chosen, splits = choose(task, found, seed, rejected)
    except DataError as error:
        left = ", ".join(f"{count} {why}" for why, count in sorted(rejected.items()))
        raise DataError(
            f"{error} (of {counted.count} rows: {left})" if left else str(error)
        ) from None
    count = counted.count
    examples: Sequence[Example] = (
        _whole(task, counted, found.keys, places, chosen, splits)
        if again
        else [example_of(task, held[n], ORDER[s]) for n, s in zip(chosen, splits, strict=True)]
    )
    return Loaded(examples, revision, count, dict(rejected))


class _Counted:
    """Rows from a function, counted as they are read."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows, self.count = rows, 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        self.count = 0
        for row in self.rows:
            self.count += 1
            yield row


def _questions(
    task: TaskSpec, made: Iterable[Mapping[str, Any]], rejected: Counter[str], *, hold: bool
) -> tuple[Found, array[int], list[Question]]:
    """Return what the draw depends on, the position of each question's row and, if `hold`, the
    questions."""
    found, places, held, total = Found(), array("q"), list[Question](), 0
    marks = Bytes()
    for place, row in enumerate(made):
        if "reject" in row:
            rejected[str(row["reject"])] += 1
            continue
        item = question(task, row)
        if isinstance(item, str):
            rejected[item] += 1
            continue
        number = found.add(item)
        mark = (
            digest(repr(item)) if task.rows.key else b""
        )  # else the key is a hash of the question
        if number == len(places):
            places.append(place)
            marks.add(mark)
            if hold:
                total = _held(task, total, row)
                held.append(item)
            continue
        if mark != marks.read(number * len(mark), (number + 1) * len(mark)):
            raise DataError(
                f"task {task.name}: rows.key: two rows have the key {item.key!r}; expected "
                "a key of its own for each"
            )
        rejected["repeated"] += 1
    return found, places, held


def _whole(
    task: TaskSpec,
    rows: Iterable[Mapping[str, Any]],
    keys: Numbered,
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
    made, total = Drawn(len(chosen)), 0
    wanted = ((n, place) for n, place in enumerate(places) if drawn[n] >= 0)
    nothing = (0, -1)
    number, wanted_at = next(wanted, nothing)
    for place, row in enumerate(rows):
        if wanted_at < 0:
            break
        if place == wanted_at:
            total = _held(task, total, row)
            item = question(task, row)
            if isinstance(item, str) or item.key != keys[number]:
                break
            at = drawn[number]
            made.add(at, example_of(task, item, ORDER[splits[at]]))
            number, wanted_at = next(wanted, nothing)
    if wanted_at >= 0:
        raise DataError(f"task {task.name}: the rows changed while they were read")
    return made if len(made) > MANY else list(made)


def _held(task: TaskSpec, total: int, row: Mapping[str, Any]) -> int:
    """Return the bytes held with one more row. Raises DataError for too many."""
    total += weight(row, f"task {task.name}")
    if total > KEPT:
        raise DataError(
            f"task {task.name}: the questions take more than {KEPT >> 20:,} MiB; expected less; "
            "draw fewer: --tasks N"
        )
    return total


def _columns(task: TaskSpec) -> set[str] | None:
    """Return the columns that the task's expressions name, or None if they may name any."""
    rows = task.rows
    given = (rows.where, rows.key, rows.group, rows.split, rows.question, rows.choices, rows.answer)
    texts = [text for text in (*given, *rows.inputs.values(), *rows.hidden.values()) if text]
    try:
        names = {name for text in texts for name in expression(text).names}
    except Refused:  # reported with its key when a question is made
        return None
    return None if "row" in names else names


def _rows(task: TaskSpec, seed: int, downloaded: bool) -> tuple[Rows | list[dict[str, Any]], str]:
    if task.source.rows:
        make = function(task.source.rows, downloaded=downloaded)
        rows = [dict(row) for row in make(seed=seed, **task.source.args)]
        return rows, fingerprint(rows)
    return open_rows(task.source)
