"""The rows of a self-edit: counted by hand, and what is dropped or kept."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from convbench.tasks.arc_agi.edit import (
    GROUPS,
    augment_puzzles,
    edit_rows,
    leave_out_puzzles,
    permute_colours,
    shuffle_shown,
)
from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle


def grid(high: int, wide: int, seed: int) -> Grid:
    stream = random.Random(seed)
    return tuple(tuple(stream.randint(0, 9) for _ in range(wide)) for _ in range(high))


def pairs(count: int, side: int = 4) -> list[Pair]:
    return [Pair(grid(side, side, i), grid(side, side, 100 + i)) for i in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_demonstrations_left_out(count: int) -> None:
    """n rows with the others there, n(n - 1) with one of them away."""
    found = pairs(count)
    one, two = leave_out_puzzles(found, 0), leave_out_puzzles(found, 1)
    assert (len(one), len(two)) == (count, count * (count - 1))
    assert all(len(row.shown) == count - 1 and row.test not in row.shown for row in one)
    assert len(set(two)) == len(two)
    assert all(len(row.shown) == count - 2 for row in two)


@pytest.mark.parametrize(
    ("groups", "each"),
    [((), 0), (("basic",), 11), (("size",), 3), (("chain",), 6), (("repeat",), 3), (GROUPS, 23)],
)
def test_each_tool_makes_a_row_of_each(groups: tuple[str, ...], each: int) -> None:
    plain = leave_out_puzzles(pairs(3), 0)
    assert len(augment_puzzles(plain, set(groups), random.Random(0))) == each * len(plain)


def test_a_side_of_more_than_thirty_is_dropped() -> None:
    """Of 16 cells: what doubles a side, which only the plain ones and the roll do not."""
    wide = [Pair(grid(3, 16, i), grid(3, 16, 9 + i)) for i in range(3)]
    found = augment_puzzles(leave_out_puzzles(wide, 0), set(GROUPS), random.Random(0))
    # 6 turns, the roll, both mirrors of rows, height, repeat-down
    assert len(found) == 3 * (6 + 1 + 2 + 1 + 1)


def test_counts_without_tools() -> None:
    """3 + 6 rows, and a copy of each with its demonstrations in another order, where that differs:
    no colour is changed."""
    found = edit_rows(pairs(3), set(), seed=0)
    plain = {*leave_out_puzzles(pairs(3), 0), *leave_out_puzzles(pairs(3), 1)}
    assert plain <= set(found)
    assert len(plain) == 9
    turned = {replace(row, shown=row.shown[::-1]) for row in leave_out_puzzles(pairs(3), 0)}
    assert set(found) - plain <= turned
    assert len(found) == len(set(found)) <= 12


def test_counts_with_a_tool() -> None:
    """Size: 3 tools and the plain ones, 9 rows each, every one with a recoloured copy."""
    found = edit_rows(pairs(3), {"size"}, seed=0)
    assert len(found) == 2 * 4 * 9
    assert len(edit_rows(pairs(3), {"repeat"}, seed=0)) == 2 * 4 * 9


def test_duplicates_are_out() -> None:
    """Grids of one colour: turning changes nothing."""
    one = tuple((5,) * 3 for _ in range(3))
    same = [Pair(one, one)] * 3
    found = edit_rows(same, {"basic"}, seed=0)
    assert len(found) == len(set(found)) < 2 * 12 * 2


def test_at_most_250_by_the_seed() -> None:
    found = edit_rows(pairs(5), set(GROUPS), seed=0)
    assert len(found) == 250
    assert found == edit_rows(pairs(5), set(GROUPS), seed=0)
    assert set(found) != set(edit_rows(pairs(5), set(GROUPS), seed=1))
    assert len(edit_rows(pairs(5), set(GROUPS), seed=0, most=7)) == 7


def test_what_does_not_fit_makes_room() -> None:
    """Rows that are too long are out before the draw, so that it is still filled."""
    small = edit_rows(pairs(5), set(GROUPS), seed=0, fits=lambda row: row.side < 8)
    assert all(row.side < 8 for row in small)
    assert len(small) == 250


def test_colours_are_permuted_but_the_background() -> None:
    row = Puzzle(tuple(pairs(2)), pairs(3)[2])
    new = permute_colours(row, random.Random(3))
    seen: dict[int, int] = {}
    for old_pair, new_pair in zip((*row.shown, row.test), (*new.shown, new.test), strict=True):
        for old, now in ((old_pair.input, new_pair.input), (old_pair.output, new_pair.output)):
            for before, after in zip(sum(old, ()), sum(now, ()), strict=True):
                assert seen.setdefault(before, after) == after
    assert seen.get(0, 0) == 0
    assert sorted(seen.values()) == sorted(set(seen.values()))
    assert seen != {colour: colour for colour in seen}


def test_shuffling_keeps_the_demonstrations() -> None:
    row = Puzzle(tuple(pairs(4)), pairs(5)[4])
    found = shuffle_shown(row, random.Random(1))
    assert found.test == row.test
    assert set(found.shown) == set(row.shown)
    assert found.shown != row.shown
