"""MathDial's options: where they come from, and that their numbers alone do not tell the gold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from convbench.errors import DataError
from convbench.tasks.mathdial import questions
from convbench.tasks.mathdial.numbers import format_of, last_line, read
from tests.tasks.leaks import surface, told

REAL = Path(__file__).parents[2] / "../shared/data/hub/eth-nlped__mathdial/default/test.parquet"

PROBLEM = "A crate holds 12 pears. Tom has 7 crates and gives away 20 pears. How many are left?"


def row(qid: int = 1, gold: str = "64", student: str = "84", **other: Any) -> dict[str, Any]:
    """A row of our own in MathDial's schema."""
    return {
        "qid": qid,
        "question": PROBLEM,
        "ground_truth": f"There are 12 * 7 = 84 pears.\nThat leaves 84 - 20 = 64 pears.\n {gold}",
        "student_incorrect_solution": f"Tom has 12 x 7 = 84 pears, so 84 are left.\n {student}",
        **other,
    }


def ask(*rows: dict[str, Any], seed: int = 0) -> list[dict[str, Any]]:
    return list(questions(rows, seed=seed))


def test_a_question_has_the_gold_the_students_number_and_two_slips() -> None:
    (made,) = ask(row())
    assert made["group"] == "1"
    assert made["question"] == PROBLEM
    assert made["student_attempt"].endswith("84")
    assert made["choices"][made["answer"]] == "64"
    assert "84" in made["choices"]
    assert len(set(made["choices"])) == 4


def test_students_of_one_problem_share_its_group_but_not_the_id() -> None:
    made = ask(row(1), row(2), row(1))
    assert [m["group"] for m in made] == ["1", "2", "1"]
    assert len({m["id"] for m in made}) == 3


def test_the_same_seed_gives_the_same_and_another_seed_other_options() -> None:
    rows = [row(n) for n in range(30)]
    assert ask(*rows, seed=3) == ask(*rows, seed=3)
    assert ask(*rows, seed=3) != ask(*rows, seed=4)


def test_a_question_does_not_depend_on_other_rows() -> None:
    assert ask(row(1), row(2))[1] == ask(row(2))[0]


@pytest.mark.parametrize(
    ("gold", "student", "reason"),
    [
        ("none", "84", "no number in the last line of ground_truth"),
        ("64", "I do not know", "no number in the last line of the student's solution"),
        ("64", "64.0", "the student's number is the answer"),
        ("64", "10.5", "the student's number cannot be written in the answer's format"),
        ("64", "-3", "the student's number cannot be written in the answer's format"),
        ("1", "3", "the answer is too small for a slip below it"),
    ],
)
def test_rows_without_a_fair_question_are_rejected(gold: str, student: str, reason: str) -> None:
    assert ask(row(gold=gold, student=student)) == [{"reject": reason}]


@pytest.mark.parametrize(
    ("gold", "student", "shown"),
    [
        ("1,200", "900", "1,200"),
        ("2.50", "3", "2.50"),
        ("$64", "$84.00", "64"),
        ("45%", "50", "45"),
    ],
)
def test_all_options_are_written_like_the_gold(gold: str, student: str, shown: str) -> None:
    (made,) = ask(row(gold=gold, student=student))
    assert made["choices"][made["answer"]] == shown
    form = format_of(shown)
    for choice in made["choices"]:
        value = read(choice)
        assert value is not None
        assert len(choice.partition(".")[2]) == form.decimals
        assert ("," in choice) == (form.commas and value >= 1000)


def test_another_schema_is_named() -> None:
    with pytest.raises(DataError, match=r"lacks \['ground_truth'\]"):
        ask({"qid": 1, "question": "", "student_incorrect_solution": ""})


def test_slips_are_mistakes_that_the_solution_explains() -> None:
    """84, 20, 104, 64 +- a number of the problem, or a miscount that leaves the ending alone."""
    wrong = Counter(c for seed in range(200) for m in ask(row(), seed=seed) for c in m["choices"])
    explained = {"84", "20", "104", "44", "76", "52", "57", "71", "96", "72"}
    assert sum(wrong[c] for c in explained) > 300


@pytest.fixture(scope="module")
def real() -> list[dict[str, Any]]:
    if not REAL.exists():
        pytest.skip("MathDial's rows are not at ../shared/data")
    parquet = pytest.importorskip("pyarrow.parquet")
    return list(parquet.read_table(REAL).to_pylist())


def test_real_rows_give_more_than_the_500_that_are_drawn(real: list[dict[str, Any]]) -> None:
    made = ask(*real)
    kept = [m for m in made if "reject" not in m]
    assert len(made) == len(real) == 599
    assert len(kept) >= 540
    assert len({m["id"] for m in kept}) == len(kept)
    assert len({row["qid"] for row in real}) == 394
    for m, source in zip(made, real, strict=True):
        if "reject" not in m:
            assert read(m["choices"][m["answer"]]) == read(last_line(source["ground_truth"]))
            student = read(last_line(source["student_incorrect_solution"]))
            assert student in {read(c) for c in m["choices"]}
            assert len({read(c) for c in m["choices"]}) == 4


def numeric(options: Sequence[str]) -> np.ndarray:
    """Surface features, and those of numbers: rank, magnitude, roundness."""
    values = np.array([float(option.replace(",", "")) for option in options])
    ranks = np.eye(4)[values.argsort().argsort()]
    sizes = np.log1p(values)
    zeros = [len(option) - len(option.rstrip("0")) for option in options]
    rounds = [values % 10 == 0, values % 5 == 0, values % 2 == 0, zeros]
    extra = np.column_stack([ranks, sizes, sizes - sizes.mean(), *rounds])
    return np.hstack([surface(options), extra.astype(float)])


@pytest.mark.parametrize("features", [surface, numeric])
def test_numbers_alone_do_not_tell_the_gold(real: list[dict[str, Any]], features: Any) -> None:
    shares = []
    for seed in range(6):
        kept = [m for m in ask(*real, seed=seed) if "reject" not in m]
        share, low, high = told(kept, features)
        shares.append(share)
        if seed == 0:
            assert low <= 0.25 <= high
    # By design, not by luck of one seed: the mean over seeds is near, too.
    assert abs(np.mean(shares) - 0.25) < 0.025


def test_positions_and_ranks_of_the_gold_are_even(real: list[dict[str, Any]]) -> None:
    places: Counter[int] = Counter()
    ranks: Counter[int] = Counter()
    for seed in range(4):
        for m in ask(*real, seed=seed):
            if "reject" not in m:
                values = [float(c.replace(",", "")) for c in m["choices"]]
                places[m["answer"]] += 1
                ranks[sum(v < values[m["answer"]] for v in values)] += 1
    for counts in (places, ranks):
        total = counts.total()
        assert all(abs(counts[i] / total - 0.25) < 0.04 for i in range(4))
