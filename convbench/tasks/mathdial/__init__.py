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
from convbench.tasks import distractors
from convbench.tasks.mathdial.slips import (
    NumberFormat,
    QuestionNumbers,
    format_of,
    last_line,
    read_number,
)

__all__ = ["questions"]

_FIELDS = ("qid", "question", "ground_truth", "student_incorrect_solution")
Pairs = list[tuple[int, int]]


@dataclass(frozen=True)
class UsableRow:
    """A row that can become a question."""

    row: Mapping[str, Any]
    group: str
    key: str
    form: NumberFormat
    numbers: QuestionNumbers


def questions(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a question, or the reason why there is none, for each row of the Hub's schema.

    A problem (`qid`) has a row for every student who was tutored on it; the row's id is the
    problem's with a running number, and the problem is the group. Which slips a question takes
    depends on all rows, since they are balanced together. Raises DataError for another schema.
    """
    outcomes = [_read_row(row, group, number) for row, group, number in _number_rows(rows)]
    cases = [outcome for outcome in outcomes if isinstance(outcome, UsableRow)]
    pairs = _slip_pairs(cases, seed)
    chosen = _choose_slips(cases, pairs, seed)
    for outcome in outcomes:
        if isinstance(outcome, str):
            yield {"reject": outcome}
        elif outcome.key in chosen:
            yield _question_row(outcome, chosen[outcome.key], seed)
        else:
            yield {"reject": "too few numbers stand to the texts as the answer does"}


def _number_rows(
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


def _read_row(row: Mapping[str, Any], group: str, number: int) -> UsableRow | str:
    """Return a row's numbers, or why it makes no question."""
    line, attempt = last_line(row["ground_truth"]), row["student_incorrect_solution"]
    gold, student = read_number(line), read_number(last_line(attempt))
    if gold is None:
        return "no number in the last line of ground_truth"
    if student is None:
        return "no number in the last line of the student's solution"
    form = format_of(line)
    right, wrong = form.to_units(gold), form.to_units(student)
    if right is None or wrong is None or min(right, wrong) < 0:
        # Written like the gold it would be another number; written as it is, it would stand out.
        return "the student's number cannot be written in the answer's format"
    if right == wrong:
        return "the student's number is the answer"
    if right == 0:
        return "the answer is 0: no slip of a size lies beside it"
    return UsableRow(
        row,
        group,
        f"{group}-{number}",
        form,
        QuestionNumbers.from_texts(row["question"], attempt, right, wrong, form),
    )


def _slip_pairs(cases: Sequence[UsableRow], seed: int) -> dict[str, Pairs]:
    """Return the possible pairs of slips of each question."""
    ratios = [
        usable.numbers.gold / usable.numbers.student for usable in cases if usable.numbers.student
    ]
    return {
        usable.key: drawn
        for usable in cases
        if (drawn := usable.numbers.draw_pairs(ratios, _seeded_random("pairs", seed, usable.key)))
    }


def _choose_slips(
    cases: Sequence[UsableRow], pairs: Mapping[str, Pairs], seed: int
) -> dict[str, tuple[int, int]]:
    """Return the slips of each question that has any."""
    with_pairs = [usable for usable in cases if usable.key in pairs]
    if not with_pairs:
        return {}
    shown = np.array(
        [
            [usable.numbers.option_features(pair) for pair in pairs[usable.key]]
            for usable in with_pairs
        ]
    )
    places = distractors.draw_sets(shown, _seeded_random("draw", seed, ""))
    return {
        usable.key: pairs[usable.key][choice]
        for usable, choice in zip(with_pairs, places, strict=True)
    }


def _question_row(usable: UsableRow, slips: tuple[int, int], seed: int) -> dict[str, Any]:
    """Return a question with its options in a random order."""
    case, order = usable.numbers, [usable.numbers.gold, usable.numbers.student, *slips]
    _seeded_random("order", seed, usable.key).shuffle(order)
    return {
        "id": usable.key,
        "group": usable.group,
        "question": usable.row["question"].strip(),
        "student_attempt": usable.row["student_incorrect_solution"].strip(),
        "choices": [usable.form.write(units) for units in order],
        "answer": order.index(case.gold),
        "_split": usable.row.get("_split"),
    }


def _seeded_random(what: str, seed: int, key: str) -> Random:
    """Return a generator that depends on the seed and the question's id only."""
    return Random(hashlib.sha256(f"mathdial:{what}:{seed}:{key}".encode()).digest())
