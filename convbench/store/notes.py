"""Small records beside a run: credit of turns, comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from convbench.errors import RunError
from convbench.schema.conversation import TurnCredit
from convbench.schema.judge import Comparison
from convbench.store.jsonl import Appender, numbered_lines
from convbench.store.run import Run
from convbench.store.shape import parse_object, parse_record

CREDIT_FILE = "advantages.jsonl"
"""In the run's folder. The newest line of a (conversation, turn, source) counts."""

Advantages = dict[str, dict[int, float]]
"""conversation_id to turn index to advantage."""


def append_credit(run: Run, turn_credits: Iterable[TurnCredit]) -> int:
    """Append the credit of turns to `advantages.jsonl` of a run, under its lock; return the number
    of lines written."""
    count = 0
    with run.lock(), Appender(run.path / CREDIT_FILE) as file:
        for credit in turn_credits:
            file.write(credit.model_dump_json().encode())
            count += 1
    return count


def newest_advantages(run: Run) -> Advantages:
    """Return the newest advantage of every turn that has one, whatever its source: by conversation,
    by turn index.

    Empty if nothing was credited. Raises RunError for a damaged line.
    """
    advantages: Advantages = {}
    for credit in _read_credit(run):
        advantages.setdefault(credit.conversation_id, {})[credit.turn_index] = credit.advantage
    return advantages


def credit_by_source(run: Run) -> dict[str, Advantages]:
    """Return the newest advantage by source (as `critic:sweet`), by conversation_id, by turn index.

    Empty if nothing was credited. Raises RunError for a damaged line.
    """
    by_source: dict[str, Advantages] = {}
    for credit in _read_credit(run):
        turns = by_source.setdefault(credit.source, {}).setdefault(credit.conversation_id, {})
        turns[credit.turn_index] = credit.advantage
    return by_source


def turn_advantages(run: Run, source: str | None = None) -> Advantages:
    """Return the newest advantage of every turn that one source credited: by conversation_id, by
    turn index.

    Without `source` the run must have exactly one. Raises RunError if the source is missing or
    ambiguous, or if the file is damaged.
    """
    by_source, path = credit_by_source(run), run.path / CREDIT_FILE
    sources = ", ".join(sorted(by_source)) or "none"
    if source is not None and source not in by_source:
        raise RunError(f"{path}: found no credit by {source!r}; available: {sources}")
    if source is None and len(by_source) != 1:
        how = "name one" if by_source else "convbench train sweet gives it"
        raise RunError(f"{path}: found credit by {sources}; expected one source; {how}")
    return by_source[source if source is not None else next(iter(by_source))]


def _read_credit(run: Run) -> Iterator[TurnCredit]:
    path = run.path / CREDIT_FILE
    for number, line in numbered_lines(path):
        parse_object(f"{path}:{number}", line)
        yield parse_record(f"{path}:{number}", line, TurnCredit)


ComparisonKey = tuple[str, str, str]
"""(conversation_id shown first, conversation_id shown second, fingerprint of the judge)."""


def comparisons_file(run: Run) -> Path:
    """Return the path of `comparisons.jsonl` in a run's folder, which need not exist."""
    return run.path / "comparisons.jsonl"


def comparison_key(comparison: Comparison) -> ComparisonKey:
    """Return (conversation shown first, conversation shown second, the judge's fingerprint).

    The other order is another key.
    """
    return comparison.first, comparison.second, comparison.fingerprint


def newest_comparisons(run: Run) -> Iterator[Comparison]:
    """Return an iterator over the newest comparison of each key, in the order of their lines; none
    without a file.

    The whole file is read first. Raises RunError for a damaged line.
    """
    newest: dict[ComparisonKey, Comparison] = {}
    path = comparisons_file(run)
    for number, line in numbered_lines(path):
        where = f"{path}:{number}"
        parse_object(where, line, ("first", "second", "judge", "fingerprint", "group_id"))
        comparison = parse_record(where, line, Comparison)
        newest.pop(comparison_key(comparison), None)
        newest[comparison_key(comparison)] = comparison
    return iter(newest.values())
