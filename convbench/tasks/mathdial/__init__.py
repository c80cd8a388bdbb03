"""MathDial (Macina et al. 2023) as multiple choice: which final number is right?

The form is that of Mukherjee et al. (NeurIPS 2025), section E.8: the problem, a student's
wrong attempt, and four numbers, the student's among them. The paper does not say how the other
wrong numbers were made; see `slips` for how they are made here.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random
from typing import Any

from convbench.errors import DataError
from convbench.tasks.mathdial.numbers import Format, format_of, last_line, read
from convbench.tasks.mathdial.slips import Pair, slips
from convbench.tasks.mathdial.working import working

__all__ = ["questions"]

_FIELDS = ("qid", "question", "ground_truth", "student_incorrect_solution")


def questions(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a question, or the reason why there is none, for each row of the Hub's schema.

    A problem (`qid`) has a row for every student who was tutored on it; the row's id is the
    problem's with a running number, and the problem is the group. Raises DataError for another
    schema.
    """
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
        yield _question(row, group, f"{group}-{seen[group]}", seed)


def _question(row: Mapping[str, Any], group: str, key: str, seed: int) -> dict[str, Any]:
    """Return the question of one row, or why it has none."""
    line = last_line(row["ground_truth"])
    gold, student = read(line), read(last_line(row["student_incorrect_solution"]))
    if gold is None:
        return {"reject": "no number in the last line of ground_truth"}
    if student is None:
        return {"reject": "no number in the last line of the student's solution"}
    form = format_of(line)
    right, wrong = form.units(gold), form.units(student)
    if right is None or wrong is None or min(right, wrong) < 0:
        # Written like the gold it would be another number; written as it is, it would stand out.
        return {"reject": "the student's number cannot be written in the answer's format"}
    if gold == student:
        return {"reject": "the student's number is the answer"}
    rng = _random(seed, key)
    solved = working(row["question"], row["ground_truth"], form)
    attempted = working(row["question"], row["student_incorrect_solution"], form)
    more = slips(Pair(right, wrong), solved, attempted, rng)
    if more is None:
        return {"reject": "the answer is too small for a slip below it"}
    choices, answer = _shuffled(right, [wrong, *more], form, rng)
    return {
        "id": key,
        "group": group,
        "question": row["question"].strip(),
        "student_attempt": row["student_incorrect_solution"].strip(),
        "choices": choices,
        "answer": answer,
    }


def _shuffled(gold: int, wrong: list[int], form: Format, rng: Random) -> tuple[list[str], int]:
    """Return the options in a random order, and where the gold stands."""
    order = [gold, *wrong]
    rng.shuffle(order)
    return [form.write(units) for units in order], order.index(gold)


def _random(seed: int, key: str) -> Random:
    """Return a generator that depends on nothing but the seed and the question's id."""
    return Random(hashlib.sha256(f"mathdial:{seed}:{key}".encode()).digest())
