"""Each of the 23 tools against grids made by hand; every one can be undone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.tasks.arc_agi.edit import BY_NAME, GROUPS, TOOLS
from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle


def grid(text: str) -> Grid:
    return tuple(tuple(map(int, row)) for row in text.split())


BY_HAND = {
    # of 123 / 456
    "rotate-90": "36 25 14",
    "rotate-180": "654 321",
    "rotate-270": "41 52 63",
    "flip-rows": "456 123",
    "flip-columns": "321 654",
    "transpose": "14 25 36",
    "mirror-rows-before": "456 123 123 456",
    "mirror-rows-after": "123 456 456 123",
    "mirror-columns-before": "321123 654456",
    "mirror-columns-after": "123321 456654",
    "translate": "564 231",  # by one down and two to the right
    "resolution": "112233 112233 445566 445566",
    "height": "123 123 456 456",
    "width": "112233 445566",
    "rotate-90-resolution": "3366 3366 2255 2255 1144 1144",
    "rotate-180-resolution": "665544 665544 332211 332211",
    "rotate-270-resolution": "4411 4411 5522 5522 6633 6633",
    "flip-rows-resolution": "445566 445566 112233 112233",
    "flip-columns-resolution": "332211 332211 665544 665544",
    "transpose-resolution": "1144 1144 2255 2255 3366 3366",
    "repeat-down": "123 456 123 456",
    "repeat-across": "123123 456456",
    "repeat-both": "123123 456456 123123 456456",
}


def test_there_are_23_tools_in_four_groups() -> None:
    assert set(BY_HAND) == set(BY_NAME)
    counts = {group: sum(tool.group == group for tool in TOOLS) for group in GROUPS}
    assert counts == {"basic": 11, "size": 3, "chain": 6, "repeat": 3}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_tool_does_what_it_says(name: str) -> None:
    assert BY_NAME[name].apply(grid("123 456"), (1, 2)) == grid(BY_HAND[name])


def grids(side: int = 7) -> st.SearchStrategy[Grid]:
    sides = st.integers(1, side)
    return st.tuples(sides, sides).flatmap(
        lambda size: st.tuples(*[st.tuples(*[st.integers(0, 9)] * size[1])] * size[0])
    )


@given(grids(), st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_every_tool_can_be_undone(one: Grid, shift: tuple[int, int]) -> None:
    for tool in TOOLS:
        assert tool.reverse(tool.apply(one, shift), shift) == one, tool.name


def test_a_tool_changes_every_grid_of_a_task_by_the_same_shift() -> None:
    pair = Pair(grid("12 34"), grid("56 78"))
    found = BY_NAME["translate"].apply_to_puzzle(Puzzle((pair, pair), pair), (1, 0))
    assert found.shown == (Pair(grid("34 12"), grid("78 56")),) * 2
    assert found.test == found.shown[0]
