"""Values that lie in a file and are looked up by their places."""

from __future__ import annotations

import random

from convbench.store.stored import Stored
from tests.support.memory import held_below


def test_values_come_back_whatever_order_they_are_asked_for_in() -> None:
    """What is not written yet too, and while more are added."""
    values = [[f"text {n} \ud800 ü", None, n / 7, {"a": [n]}, 2**70] for n in range(6_000)]
    stored: Stored[list[object]] = Stored()
    for at, value in enumerate(values):
        assert stored.add(value) == at
        assert stored[at // 2] == values[at // 2]
    assert len(stored) == len(values)
    order = list(range(len(values)))
    assert [stored[at] for at in order] == values
    random.Random(0).shuffle(order)
    assert all(stored[at] == values[at] for at in order)


def test_stored_values_take_a_byte_each() -> None:
    def store(count: int) -> None:
        stored: Stored[list[object]] = Stored()
        for n in range(count):
            stored.add(["some text", n])

    held_below(8, store, 10_000, 30_000)
