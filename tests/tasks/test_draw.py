"""From questions to examples: the same draw on every machine, groups kept whole."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from convbench.errors import DataError
from convbench.schema import Choice, TaskSpec
from convbench.schema.task import Split
from convbench.store.numbered import NameNumbers
from convbench.tasks.draw import PART, SPLIT_NAMES, SPLITS, rank_key, seeded_order, split_sizes
from convbench.tasks.draw import question_words as words_of
from convbench.tasks.mapping import TaskQuestion, make_question
from tests.helpers.questions import arc, draw, task


def asked(count: int, per_group: int = 1) -> list[TaskQuestion]:
    return [
        TaskQuestion(
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


def test_a_split_that_is_none_is_told_and_one_that_is_not_said_is_drawn() -> None:
    official = task("arc", sample={"count": "all", "split": "official"})
    items = [replace(one, split=["train", "test"][i % 2]) for i, one in enumerate(asked(8))]
    wrong = [*items, replace(asked(9)[-1], split="trian")]
    with pytest.raises(DataError, match=r"rows\.split: found 'trian' for 'k8'"):
        draw(official, wrong, 0)
    unsaid = draw(official, [*items, asked(9)[-1]], 0)
    assert {one.example_id for one in unsaid} == {f"k{i}" for i in range(9)}


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
        TaskQuestion(f"{group}-{n}", str(group), None, "Q?", (), "x")
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


def plainly(task: TaskSpec, items: list[TaskQuestion], seed: int) -> list[tuple[str, str]]:
    """Return (key, split) as `draw` has them, by looking at all questions for each."""
    if task.sample.split == "official" and len({item.split for item in items}) > 1:
        return official(task, items, seed)
    items = sorted(items, key=lambda item: rank_key(seed, "draw", item.key))
    items = items if task.sample.count == "all" else items[: task.sample.count]
    linked = {item.group: {item.group} for item in items}
    for item, other in itertools.product(items, items):
        if words_of(item) == words_of(other):
            together = linked[item.group] | linked[other.group]
            linked.update(dict.fromkeys(together, together))
    unit = {group: min(together) for group, together in linked.items()}
    room, split_of = split_sizes(task, len(items), dict.fromkeys(SPLITS, 1)), dict[str, Split]()
    held: tuple[Split, ...] = ("test", "validation")
    for name in sorted(set(unit.values()), key=lambda name: rank_key(seed, "split", name)):
        members = sum(unit[item.group] == name for item in items)
        split_of[name] = next((one for one in held if members <= room[one]), "train")
        room[split_of[name]] -= members
    return [(item.key, split_of[unit[item.group]]) for item in items]


def official(task: TaskSpec, items: list[TaskQuestion], seed: int) -> list[tuple[str, str]]:
    """The same where the source says the splits."""
    said = [(item, SPLIT_NAMES[str(item.split)]) for item in items]
    kept = [
        (item.key, split)
        for item, split in said
        if not any(
            words_of(other) == words_of(item) and SPLITS.index(more) > SPLITS.index(split)
            for other, more in said
        )
    ]
    kept.sort(key=lambda one: rank_key(seed, "draw", one[0]))
    if task.sample.count == "all":
        return list[tuple[str, str]](kept)
    room = split_sizes(task, task.sample.count, Counter(split for _, split in kept))
    before: Counter[str] = Counter()
    taken = []
    for key, split in kept:
        if before[split] < room[split]:
            taken.append((key, split))
        before[split] += 1
    return list[tuple[str, str]](taken)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from(SPLITS)),
                  min_size=1, max_size=40),
    how=st.sampled_from(["fraction", "official"]),
    shares=st.sampled_from([(0.5, 0.2), (0.8, 0.0), (0.0, 0.0), (0.8, 0.2)]),
    few=st.booleans(),
    seed=st.integers(0, 5),
)  # fmt: skip
def test_the_draw_is_what_looking_at_all_questions_gives(
    rows: list[tuple[int, int, Split]], how: str, shares: tuple[float, float], few: bool, seed: int
) -> None:
    """Of groups linked by words, and of questions that another split asks too. Texts with half of
    a surrogate pair are texts like others."""
    items = [
        TaskQuestion(f"k{n}", f"g{group}", split, f"Which {words}?" if words else "\ud800", (), "x")
        for n, (group, words, split) in enumerate(rows)
    ]
    sample = {"count": max(1, len(items) // 2) if few else "all", "split": how,
              "train": shares[0], "validation": shares[1]}  # fmt: skip
    try:
        drawn = draw(task("arc", sample=sample), items, seed)
    except DataError:  # too few of a split
        reject()
    expected = plainly(task("arc", sample=sample), items, seed)
    assert [(example.example_id, example.split) for example in drawn] == expected


def test_groups_that_are_linked_through_many_others_go_to_one_split() -> None:
    chained = [
        TaskQuestion(f"{group}-{words}", f"g{group}", None, f"Which {chain}, {words}?", (), "x")
        for chain in range(10)
        for group in range(chain * 60, chain * 60 + 60)
        for words in (group, group + 1)
    ]
    drawn = draw(sized("all"), chained, 0)
    splits = {(int(e.group_id[1:]) // 60, e.split) for e in drawn}
    assert sorted(chain for chain, _ in splits) == list(range(10))
    assert Counter(split for _, split in splits) == {"train": 8, "test": 2}


def test_names_of_many_parts_come_in_the_order_of_their_ranks() -> None:
    names, keys = NameNumbers(), [f"k{n}" for n in range(3 * PART)]
    for key in keys:
        names.number_of(key)
    found = seeded_order(7, "draw", range(0, len(keys), 2), names)
    assert [keys[n] for n in found] == sorted(keys[::2], key=lambda key: rank_key(7, "draw", key))


def test_questions_whose_names_have_one_hash_are_all_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = draw(sized("all"), asked(300, per_group=2), 0)
    monkeypatch.setattr("convbench.store.numbered.hash", lambda _: 5, raising=False)
    assert draw(sized("all"), asked(300, per_group=2), 0) == expected


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
    found = [q for q in (make_question(made, row) for row in rows) if q]
    splits = {e.example_id: e.split for e in draw(made, found, 0)}
    assert splits == {"r0": "train", "r1": "validation", "r2": "test", "r3": "validation"}
    odd = make_question(made, arc("AB", "A", where="holdout"))
    assert odd is not None
    with pytest.raises(DataError, match=r"rows.split: found 'holdout' for 'ours'; expected one of"):
        draw(made, [odd], 0)
