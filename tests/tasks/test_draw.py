"""From questions to examples: the same draw on every machine, groups kept whole."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convbench.errors import DataError
from convbench.schema import Choice, TaskSpec
from convbench.tasks.mapping import Question, question

from .test_questions import arc, draw, task


def asked(count: int, per_group: int = 1) -> list[Question]:
    return [
        Question(
            key=f"k{n}",
            group=f"g{n // per_group}",
            split=None,
            question=f"Question {n}?",
            choices=(Choice(label="A", text="x"), Choice(label="B", text="y")),
            answer="A",
        )
        for n in range(count)
    ]


def sized(count: int | str, train: float = 0.8, validation: float = 0.0) -> TaskSpec:
    return task("arc", sample={"count": count, "train": train, "validation": validation})


FIRST_AT_SEED_0 = ["k161", "k569", "k213", "k459", "k346", "k553", "k318", "k336"]
TEST_AT_SEED_0 = ["k569", "k484", "k542", "k106", "k531", "k324"]
FIRST_AT_SEED_1 = ["k328", "k96", "k533", "k449"]


def test_the_draw_is_the_same_on_every_machine() -> None:
    """Written down once: a change here makes every published run another one."""
    drawn = draw(sized(500), asked(600), 0)
    assert [e.example_id for e in drawn[:8]] == FIRST_AT_SEED_0
    assert [e.example_id for e in drawn if e.split == "test"][:6] == TEST_AT_SEED_0
    other = draw(sized(500), asked(600), 1)
    assert [e.example_id for e in other[:4]] == FIRST_AT_SEED_1


def test_the_draw_does_not_depend_on_the_rows_order() -> None:
    rows = asked(600, per_group=2)
    assert draw(sized(500), rows, 3) == draw(sized(500), rows[::-1], 3)


def test_a_smaller_draw_is_the_start_of_a_larger_one() -> None:
    few, many = draw(sized(50), asked(600), 0), draw(sized(500), asked(600), 0)
    assert [e.example_id for e in few] == [e.example_id for e in many[:50]]


def test_the_usual_sizes() -> None:
    drawn = draw(sized(500), asked(1500), 0)
    assert Counter(e.split for e in drawn) == {"train": 400, "test": 100}
    assert len({e.example_id for e in drawn}) == 500


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    train=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    validation=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 5),
)
def test_groups_never_straddle_splits(
    sizes: list[int], train: float, validation: float, seed: int
) -> None:
    rows = [
        Question(f"{group}-{n}", str(group), None, "Q?", (), "x")
        for group, size in enumerate(sizes)
        for n in range(size)
    ]
    validation = min(validation, 1 - train)
    drawn = draw(sized("all", train, validation), rows, seed)
    assert len(drawn) == len(rows)
    places: dict[str, set[str]] = {}
    for example in drawn:
        places.setdefault(example.group_id, set()).add(example.split)
    assert all(len(splits) == 1 for splits in places.values())
    count = Counter(example.split for example in drawn)
    wanted = len(rows) - round(len(rows) * train) - round(len(rows) * validation)
    assert count["test"] <= wanted
    if 1 in sizes and max(sizes) < 3 and sizes.count(1) >= 3:
        assert wanted - count["test"] <= 1


def test_too_few_rows_says_how_many_and_what_to_do() -> None:
    with pytest.raises(
        DataError, match=r"arc: found 90 questions; expected at least 500.*--tasks all.*--tasks 90"
    ):
        draw(sized(500), asked(90), 0)
    assert len(draw(sized("all"), asked(90), 0)) == 90


def test_rows_may_say_their_split() -> None:
    made = task("arc", sample={"count": "all", "split": "rows"}, rows__split="where")
    rows = [
        arc("AB", "A", id=f"r{n}", where=w) for n, w in enumerate(["train", "dev", "test", "valid"])
    ]
    found = [q for q in (question(made, row) for row in rows) if q]
    splits = {e.example_id: e.split for e in draw(made, found, 0)}
    assert splits == {"r0": "train", "r1": "validation", "r2": "test", "r3": "validation"}
    odd = question(made, arc("AB", "A", where="holdout"))
    assert odd is not None
    with pytest.raises(DataError, match=r"rows.split: found 'holdout' for 'ours'; expected one of"):
        draw(made, [odd], 0)
