"""MathDial (Macina et al. 2023) as multiple choice: which final number is right?

The form is that of Mukherjee et al. (NeurIPS 2025), section E.8: the problem, a student's wrong
attempt, and four numbers, the student's among them. The paper does not say how the other wrong
numbers were made; `slips` describes how they are made here. The attempt reveals the student's
number, so that guessing is right one time in three.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from convbench.errors import DataError
from convbench.tasks import evening
from convbench.tasks.mathdial.slips import Case, Format, format_of, last_line, read

__all__ = ["questions"]

_FIELDS = ("qid", "question", "ground_truth", "student_incorrect_solution")
Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class Found:
    """A row that can become a question."""

    row: Mapping[str, Any]
    group: str
    key: str
    form: Format
    case: Case


def questions(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a question, or the reason why there is none, for each row of the Hub's schema.

    A problem (`qid`) has a row for every student who was tutored on it; the row's id is the
    problem's with a running number, and the problem is the group. Which slips a question takes
    depends on all rows, since they are balanced together. Raises DataError for another schema.
    """
    found = [_found(row, group, number) for row, group, number in _numbered(rows)]
    cases = [one for one in found if isinstance(one, Found)]
    pairs = _pairs(cases, seed)
    chosen = _chosen(cases, pairs, seed)
    for one in found:
        if isinstance(one, str):
            yield {"reject": one}
        elif one.key in chosen:
            yield _question(one, chosen[one.key], seed)
        else:
            yield {"reject": "too few numbers stand to the texts as the answer does"}


def _numbered(
    rows: Iterable[Mapping[str, Any]],
) -> Iterator[tuple[Mapping[str, Any], str, int]]:
    """Yield rows with their problem and their number among its rows. Raises DataError for a row
    that lacks a field."""
    seen: Counter[str] = Counter()
    for row in rows:
        missing = [name for name in _FIELDS if name not in row]
        if missing:
            raise DataError(
                f"mathdial: a row lacks {missing}; expected {[*_FIELDS]}, found {sorted(row)}; "
                "name a copy of eth-nlped/mathdial: --set task.source.file=PATH"
            )
        group = str(row["qid"])
        seen[group] += 1
        yield row, group, seen[group]


def _found(row: Mapping[str, Any], group: str, number: int) -> Found | str:
    """Return a row's numbers, or why it makes no question."""
    line, attempt = last_line(row["ground_truth"]), row["student_incorrect_solution"]
    gold, student = read(line), read(last_line(attempt))
    if gold is None:
        return "no number in the last line of ground_truth"
    if student is None:
        return "no number in the last line of the student's solution"
    form = format_of(line)
    right, wrong = form.units(gold), form.units(student)
    if right is None or wrong is None or min(right, wrong) < 0:
        # Written like the gold it would be another number; written as it is, it would stand out.
        return "the student's number cannot be written in the answer's format"
    if right == wrong:
        return "the student's number is the answer"
    if right == 0:
        return "the answer is 0: no slip of a size lies beside it"
    return Found(
        row, group, f"{group}-{number}", form, Case.of(row["question"], attempt, right, wrong, form)
    )


def _pairs(cases: Sequence[Found], seed: int) -> dict[str, Pairs]:
    """Return the possible pairs of slips of each question."""
    ratios = [one.case.gold / one.case.student for one in cases if one.case.student]
    return {
        one.key: found
        for one in cases
        if (found := one.case.pairs(ratios, _random("pairs", seed, one.key)))
    }


def _chosen(
    cases: Sequence[Found], pairs: Mapping[str, Pairs], seed: int
) -> dict[str, tuple[int, int]]:
    """Return the slips of each question that has any."""
    asked = [one for one in cases if one.key in pairs]
    if not asked:
        return {}
    shown = np.array([[one.case.looks(pair) for pair in pairs[one.key]] for one in asked])
    places = evening.drawn(shown, _random("draw", seed, ""))
    return {one.key: pairs[one.key][place] for one, place in zip(asked, places, strict=True)}


def _question(found: Found, slips: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return a question with its options in a random order."""
    case, order = found.case, [found.case.gold, found.case.student, *slips]
    _random("order", seed, found.key).shuffle(order)
    return {
        "id": found.key,
        "group": found.group,
        "question": found.row["question"].strip(),
        "student_attempt": found.row["student_incorrect_solution"].strip(),
        "choices": [found.form.write(units) for units in order],
        "answer": order.index(case.gold),
        "_split": found.row.get("_split"),
    }


def _random(what: str, seed: int, key: str) -> Random:
    """Return a generator that depends on the seed and the question's id only."""
    return Random(hashlib.sha256(f"mathdial:{what}:{seed}:{key}".encode()).digest())
