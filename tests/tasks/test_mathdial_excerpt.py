"""MathDial's questions from an excerpt of our own: several students of one problem, sums of money,
decimals, units, and rows of which no fair question can be made."""

from __future__ import annotations

from collections import Counter

import pytest

from convbench.tasks.mathdial import questions
from convbench.tasks.mathdial.slips import last_line, read_number
from tests.helpers.excerpts import EXCERPTS, rows

ROWS = list(rows(EXCERPTS / "hub/eth-nlped__mathdial/default/test.jsonl"))


def test_every_row_is_a_question_or_a_reason() -> None:
    made = list(questions(ROWS, seed=0))
    kept = [m for m in made if "reject" not in m]
    assert len(made) == len(ROWS) == 26
    assert {m["reject"] for m in made if "reject" in m} >= {
        "no number in the last line of ground_truth",
        "no number in the last line of the student's solution",
        "the student's number is the answer",
        "the student's number cannot be written in the answer's format",
    }
    assert len(kept) >= 15
    assert len({m["id"] for m in kept}) == len(kept) > len({m["group"] for m in kept})


def test_the_gold_and_the_student_s_number_are_among_four() -> None:
    for m, row in zip(questions(ROWS, seed=0), ROWS, strict=True):
        if "reject" not in m:
            values = {read_number(choice) for choice in m["choices"]}
            assert len(values) == 4
            assert read_number(m["choices"][m["answer"]]) == read_number(
                last_line(row["ground_truth"])
            )
            assert read_number(last_line(row["student_incorrect_solution"])) in values


def test_options_are_written_as_the_answer_is() -> None:
    made = {m["id"]: m for m in questions(ROWS, seed=0) if "reject" not in m}
    assert "2,600" in made["1004-1"]["choices"]
    assert "1,325" in made["1004-1"]["choices"], "the student wrote 1325"
    assert all(choice.count(".") == 1 for choice in made["1003-1"]["choices"])


@pytest.mark.exhaustive
def test_the_gold_stands_anywhere() -> None:
    """Over 40 seeds each place has a quarter, give or take four standard deviations."""
    made = [m for seed in range(40) for m in questions(ROWS, seed=seed) if "reject" not in m]
    places = Counter(m["answer"] for m in made)
    spread = 4 * (0.25 * 0.75 / len(made)) ** 0.5
    assert all(abs(places[i] / len(made) - 0.25) < spread for i in range(4))
