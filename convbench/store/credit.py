"""Credit of single turns as plain data of a run: one line a turn in `advantages.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from convbench.errors import RunError
from convbench.schema.conversation import TurnCredit
from convbench.store.jsonl import Appender, lines
from convbench.store.run import Run
from convbench.store.shape import an_object, checked

FILE = "advantages.jsonl"
"""In the run's folder; appended, the newest line of a (conversation, turn, source) counts."""

Advantages = dict[str, dict[int, float]]
"""conversation_id to turn index to advantage."""


def keep_credit(run: Run, found: Iterable[TurnCredit]) -> int:
    """Append the credit of turns to the run, under its lock; return how many."""
    count = 0
    with run.lock(), Appender(run.path / FILE) as file:
        for one in found:
            file.write(one.model_dump_json().encode())
            count += 1
    return count


def newest_advantages(run: Run) -> Advantages:
    """Return the newest advantage of every turn that has one, whoever said it; empty without."""
    found: Advantages = {}
    for one in _credit(run):
        found.setdefault(one.conversation_id, {})[one.turn_index] = one.advantage
    return found


def credit_by_source(run: Run) -> dict[str, Advantages]:
    """Return the newest advantage of every turn, by who said it; empty without any."""
    found: dict[str, Advantages] = {}
    for one in _credit(run):
        of = found.setdefault(one.source, {}).setdefault(one.conversation_id, {})
        of[one.turn_index] = one.advantage
    return found


def turn_advantages(run: Run, source: str | None = None) -> Advantages:
    """Return the advantage of every policy turn that has one, of one source.

    Without a source the only one there is. Raises RunError where there is none, where several
    are and none is named, or where the file is damaged. Turns that were not credited are missing.
    """
    by_source, path = credit_by_source(run), run.path / FILE
    there = ", ".join(sorted(by_source)) or "none"
    if source is not None and source not in by_source:
        raise RunError(f"{path}: found no credit by {source!r}; there is: {there}")
    if source is None and len(by_source) != 1:
        how = "name one" if by_source else "give some first: convbench credit --help"
        raise RunError(f"{path}: found credit by {there}; expected one source; {how}")
    return by_source[source if source is not None else next(iter(by_source))]


def _credit(run: Run) -> Iterator[TurnCredit]:
    path = run.path / FILE
    for number, line in lines(path):
        an_object(f"{path}:{number}", line)
        yield checked(f"{path}:{number}", line, TurnCredit)
