"""From a task spec to its examples: read rows, make questions, count what is left out, draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from convbench.catalog import function
from convbench.errors import DataError
from convbench.hub.rows import load_rows
from convbench.schema import Example, TaskSpec, fingerprint
from convbench.tasks.draw import draw
from convbench.tasks.mapping import Question, question


@dataclass(frozen=True)
class Loaded:
    """A task's examples and how they came to be."""

    examples: list[Example]
    revision: str
    """Commit of the source, or a hash of its rows."""
    rows: int
    """Raw rows read."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rows that gave no question, by reason."""


def load_examples(task: TaskSpec, seed: int, *, downloaded: bool = False) -> Loaded:
    """Return the drawn examples of a task.

    Raises HubError or DataError in one line that says what to do; nothing is written.
    """
    rows, revision = _rows(task, seed, downloaded)
    rejected: Counter[str] = Counter()
    made: Iterable[Mapping[str, Any]] = rows
    if task.rows.maker:
        made = function(task.rows.maker, downloaded=downloaded)(rows, seed=seed)
    found: dict[str, Question] = {}
    for row in made:
        if "reject" in row:
            rejected[str(row["reject"])] += 1
            continue
        item = question(task, row)
        if item is None:
            rejected["left out by rows.where"] += 1
        elif item.key in found:
            if task.rows.key and found[item.key] != item:
                raise DataError(
                    f"task {task.name}: rows.key: two rows have the key {item.key!r}; expected "
                    "a key of its own for each"
                )
            rejected["repeated"] += 1
        else:
            found[item.key] = item
    try:
        examples = draw(task, list(found.values()), seed, rejected)
    except DataError as error:
        left = ", ".join(f"{count} {why}" for why, count in sorted(rejected.items()))
        raise DataError(f"{error} (of {len(rows)} rows: {left})" if left else str(error)) from None
    return Loaded(examples, revision, len(rows), dict(rejected))


def _rows(task: TaskSpec, seed: int, downloaded: bool) -> tuple[list[dict[str, Any]], str]:
    if task.source.rows:
        make = function(task.source.rows, downloaded=downloaded)
        rows = [dict(row) for row in make(seed=seed, **task.source.args)]
        return rows, fingerprint(rows)
    return load_rows(task.source)
