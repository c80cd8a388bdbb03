"""Names in the order in which they came first: none is lost, and few bytes are held of each."""

from __future__ import annotations

import random

import pytest

from convbench.store.numbered import FIRST, NameNumbers
from tests.support.memory import held_below

ODD = ("", " ", "é", "e\u0301", "\ud800", "\ud800x", "\x00", "\x00\x00")


def test_a_name_has_one_number_and_a_number_its_name() -> None:
    draw = random.Random(0)
    names = [*ODD, *(f"name {draw.randrange(9000)}" for _ in range(20_000))]
    numbered, numbers = NameNumbers(), dict[str, int]()
    for name in names:
        assert numbered.number_of(name) == numbers.setdefault(name, len(numbers))
    assert len(numbered) == len(numbers)
    assert [numbered[number] for number in numbers.values()] == list(numbers)


def test_names_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convbench.store.numbered.hash", lambda _: -1, raising=False)
    names, numbered = [f"name {n}" for n in range(3 * FIRST)], NameNumbers()
    for _ in range(2):
        assert [numbered.number_of(name) for name in names] == list(range(len(names)))


@pytest.mark.exhaustive
def test_few_bytes_are_held_of_each() -> None:
    def number(count: int) -> None:
        numbered = NameNumbers()
        for one in range(count):
            numbered.number_of(f"some question {one}")

    held_below(24, number, 10_000, 40_000)
