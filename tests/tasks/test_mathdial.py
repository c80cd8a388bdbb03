"""MathDial's options: where they come from, and that their numbers alone do not tell the gold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from convbench.errors import DataError
from convbench.tasks.mathdial import questions
from convbench.tasks.mathdial.slips import format_of, last_line, read_number
from tests.helpers.excerpts import Source
from tests.tasks.leaks import ALL, MODELS, attempted, digits, numeric, shown_wrong, surface, told

GUESS = 1 / 3
"""What guessing finds: the attempt shows which number is the student's, and so wrong."""
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


@pytest.mark.parametrize(
    ("gold", "student", "reason"),
    [
        ("none", "84", "no number in the last line of ground_truth"),
        ("64", "I do not know", "no number in the last line of the student's solution"),
        ("64", "64.0", "the student's number is the answer"),
        ("64", "10.5", "the student's number cannot be written in the answer's format"),
        ("64", "-3", "the student's number cannot be written in the answer's format"),
        ("0", "3", "the answer is 0: no slip of a size lies beside it"),
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
        value = read_number(choice)
        assert value is not None
        assert len(choice.partition(".")[2]) == form.decimals
        assert ("," in choice) == (form.commas and value >= 1000)


def test_another_schema_is_named() -> None:
    with pytest.raises(DataError, match=r"lacks \['ground_truth'\]"):
        ask({"qid": 1, "question": "", "student_incorrect_solution": ""})


def test_slips_stand_to_the_texts_as_the_answer_does() -> None:
    """64 is in no text, and 84 - 20 makes it: so it is with every slip."""
    texts = {12, 7, 20, 84}
    made = {x for a in texts for b in texts for x in (a + b, abs(a - b), a * b, a / b)}
    wrong = {int(c) for seed in range(20) for m in ask(row(), seed=seed) for c in m["choices"]}
    slips = wrong - {64, 84}
    assert len(slips) >= 4
    assert slips <= made
    assert not slips & texts


@pytest.fixture(scope="module")
def given(hub_rows: Source) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(hub_rows.place / "eth-nlped__mathdial/default/test.parquet")
    return list(found.to_pylist())


def test_rows_give_more_than_the_500_that_are_drawn(
    hub_rows: Source, given: list[dict[str, Any]]
) -> None:
    made = ask(*given)
    kept = [m for m in made if "reject" not in m]
    assert len(made) == len(given) == hub_rows.pick(26, 599)
    assert len(kept) >= hub_rows.pick(20, 500)
    assert len({m["id"] for m in kept}) == len(kept)
    for m, source in zip(made, given, strict=True):
        if "reject" not in m:
            assert read_number(m["choices"][m["answer"]]) == read_number(
                last_line(source["ground_truth"])
            )
            student = read_number(last_line(source["student_incorrect_solution"]))
            assert student in {read_number(c) for c in m["choices"]}
            assert len({read_number(c) for c in m["choices"]}) == 4


@pytest.fixture(scope="module")
def made(hub_rows: Source, given: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The questions of one seed or two; of the few rows of the excerpt, those of ten together."""
    found = [
        [m for m in ask(*given, seed=seed) if "reject" not in m]
        for seed in range(hub_rows.pick(10, 2 if ALL else 1))
    ]
    return found if hub_rows.real else [[m for one in found for m in one]]


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", MODELS)
def test_texts_and_numbers_do_not_tell_the_gold(
    made: list[list[dict[str, Any]]], model: str
) -> None:
    """Slips that were only like the gold and the student's number were told in 45% to 54%."""
    features = (surface, numeric, attempted)
    found = [told(one, *features, model=model, seed=seed) for seed, one in enumerate(made)]
    for share, low, high in found:
        assert low <= GUESS, f"{share:.3f} [{low:.3f}, {high:.3f}]"


def test_digits_and_distances_do_not_tell_the_gold(made: list[list[dict[str, Any]]]) -> None:
    """What divides a number, how it ends, and how near the others lie told it in 39%."""
    for seed, one in enumerate(made):
        share, low, high = told(one, digits, shown_wrong, seed=seed)
        assert low <= GUESS, f"{share:.3f} [{low:.3f}, {high:.3f}]"


@pytest.mark.parametrize("model", MODELS)
def test_numbers_alone_do_not_tell_the_gold(made: list[list[dict[str, Any]]], model: str) -> None:
    share, low, high = told(made[0], surface, numeric, model=model)
    assert low <= 0.25, f"{share:.3f} [{low:.3f}, {high:.3f}]"


def test_what_evens_one_half_of_the_problems_says_little_about_the_other(
    hub_rows: Source, given: list[dict[str, Any]]
) -> None:
    """Questions are made of each half by itself, then the adversary learns on one half only."""
    halves = [[r for r in given if int(r["qid"]) // 3 % 2 == part] for part in (0, 1)]
    learnt = {str(r["qid"]) for r in halves[0]}
    made = [m for half in halves for m in ask(*half) if "reject" not in m]
    for train in (learnt.__contains__, lambda name: name not in learnt):
        share, low, high = told(made, numeric, attempted, train=train)
        assert low <= GUESS, f"{share:.3f} [{low:.3f}, {high:.3f}]"


def test_the_adversary_does_find_slips_that_no_operation_makes(
    hub_rows: Source,
    made: list[list[dict[str, Any]]],
) -> None:
    leaky = []
    for m in made[0]:
        said = read_number(last_line(m["student_attempt"]))
        kept = [i == m["answer"] or read_number(c) == said for i, c in enumerate(m["choices"])]
        far = [f"{float(c.replace(',', '')) * 1.37:.1f}" for c in m["choices"]]
        choices = [c if own else f for c, f, own in zip(m["choices"], far, kept, strict=True)]
        leaky.append({**m, "choices": choices})
    assert told(leaky, attempted)[1] > hub_rows.pick(0.5, 0.6)


def test_positions_and_ranks_of_the_gold_are_even(
    hub_rows: Source, made: list[list[dict[str, Any]]]
) -> None:
    places: Counter[int] = Counter()
    ranks: Counter[int] = Counter()
    for m in (m for one in made for m in one):
        values = [float(c.replace(",", "")) for c in m["choices"]]
        places[m["answer"]] += 1
        ranks[sum(v < values[m["answer"]] for v in values)] += 1
    for counts in (places, ranks):
        off = max(abs(counts[i] / counts.total() - 0.25) for i in range(4))
        assert off < hub_rows.pick(0.16, 0.04)
