"""Load a task's examples: read rows, make questions, count rejected rows, draw."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convbench.catalog import find_function
from convbench.errors import DataError
from convbench.schema import Example, TaskSpec, fingerprint
from convbench.schema.task import SPLITS
from convbench.source import File, open_hub, open_source, split_order
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

MANY = 4096
"""Most questions held in memory; more are spilled to a file."""


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
    rows, revision = _source_rows(task, seed, downloaded)
    again = isinstance(rows, FileRows) and not task.rows.maker
    if again and isinstance(rows, FileRows):
        rows.columns = _needed_columns(task)
    counted = _CountedRows(rows)
    made: Iterable[Mapping[str, Any]] = counted
    if task.rows.maker:
        made = find_function(task.rows.maker, downloaded=downloaded)(counted, seed=seed)
    rejected: Counter[str] = Counter()
    pool, places, held = _read_questions(task, made, rejected, hold=not again)
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


class FileRows:
    """The rows of files, read again each time they are iterated; each has its `_split`.

    Raises DataError for the first that cannot be read: unlike a log, a set of questions is whole.
    """

    columns: Collection[str] | None = None
    """Columns that are read of parquet; None for all."""

    def __init__(self, files: Iterable[tuple[str, File]]) -> None:
        self.files = tuple(files)
        """(split, file)."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for split, file in self.files:
            for place, value in file.rows(self.columns):
                for row in value if isinstance(value, list) else [value]:
                    if not isinstance(row, dict):
                        found = row if isinstance(row, DataError) else f"a {type(row).__name__}"
                        raise DataError(f"{place}: found {found}; expected one object a line")
                    yield {**row, "_split": split}


class _CountedRows:
    """Rows, counted as they are read."""

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
    pool, places, held = QuestionPool(), array("q"), list[TaskQuestion]()
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
    examples = DrawnExamples(len(chosen))
    pending = ((n, position) for n, position in enumerate(places) if drawn[n] >= 0)
    nothing = (0, -1)
    number, wanted_at = next(pending, nothing)
    for position, row in enumerate(rows):
        if wanted_at < 0:
            break
        if position == wanted_at:
            item = make_question(task, row)
            if isinstance(item, str) or item.key != keys[number]:
                break
            at = drawn[number]
            examples.add(at, example_of(task, item, SPLITS[splits[at]]))
            number, wanted_at = next(pending, nothing)
    if wanted_at >= 0:
        raise DataError(f"task {task.name}: the rows changed while they were read")
    return examples if len(examples) > MANY else list(examples)


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
) -> tuple[FileRows | list[dict[str, Any]], str]:
    source = task.source
    if source.rows:
        make = find_function(source.rows, downloaded=downloaded)
        rows = [dict(row) for row in make(seed=seed, **source.args)]
        return rows, fingerprint(rows)
    if source.file is None:
        files, revision = open_hub(source.hub or "", source.config, source.splits, source.revision)
        return FileRows((file.split or "train", file) for file in files), revision
    try:
        files, revision = open_source(source.file)
    except DataError as error:
        raise DataError(f"{error}; name another: --set task.source.file=PATH") from None
    is_folder = len(files) > 1 or files[0].path != Path(source.file).expanduser()
    parts = [(_split_name(file) if is_folder else file.split or "train", file) for file in files]
    names = sorted({split for split, _ in parts}, key=split_order)
    stems: dict[str, File] = {}
    for file in files:
        other = stems.setdefault(str(file.path.with_suffix("")), file)
        if other is not file:
            raise DataError(
                f"{source.file}: found {other.path.name} and {file.path.name}; expected one file "
                f"for split {file.path.stem}; name one: --set task.source.file={file.path}"
            )
    missing = [name for name in source.splits if name not in names]
    if missing:
        raise DataError(
            f"{source.file}: found no split {missing[0]!r}; there is: {', '.join(names)}; "
            f"choose among them, e.g. --set task.source.splits=[{names[0]}]"
        )
    chosen = [part for part in parts if not source.splits or part[0] in source.splits]
    return FileRows(sorted(chosen, key=lambda part: split_order(part[0]))), revision


def _split_name(file: File) -> str:
    """Return the name of a folder's file, without the number of a shard."""
    return file.split or re.sub(r"-\d+-of-\d+$", "", file.path.stem)
