"""The rules of thinking blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.answers.tags import (
    closes_thinking,
    leaves_open,
    opens_thinking,
    split_segments,
    without_thinking,
)


@pytest.mark.parametrize(
    ("text", "opens", "closed"),
    [
        ("no tags", False, False),
        ("<thinking>a</thinking> b", True, True),
        ("<Thinking>a</THINKING> b", True, True),
        ("b <thinking>a", True, False),
        ("a</thinking> b", False, False),
        ("a</thinking> b <thinking> c", True, False),
        ("a</thinking> b <thinking> c </thinking>", True, True),
        ("<think>a</think>", True, True),
        ("thinking aloud", False, False),
    ],
)
def test_opening_and_closed(text, opens, closed):
    assert opens_thinking(text) is opens
    assert closes_thinking(text) is closed


@pytest.mark.parametrize(
    ("turns", "still_open"),
    [
        ([], False),
        (["a"], False),
        (["<thinking> a"], True),
        (["<thinking> a", "no tags"], True),
        (["<thinking> a", "b </thinking> c"], False),
        (["<thinking> a", "<thinking> b </thinking> c"], False),
        (["a </thinking> b"], False),
        (["<thinking>a</thinking>", "<thinking> b"], True),
    ],
)
def test_left_open(turns, still_open):
    assert leaves_open(turns) is still_open


@pytest.mark.parametrize(
    ("text", "carried", "shown"),
    [
        ("a <thinking>b</thinking> c", False, "a \n c"),
        ("a <thinking>b", False, "a "),
        ("a <thinking>b <thinking>c</thinking> d", False, "a \n d"),
        ("a</thinking> b", False, "a</thinking> b"),
        ("a</thinking> b", True, " b"),
        ("a</thinking> b </thinking> c", True, " b </thinking> c"),
        ("no tag closes it", True, "no tag closes it"),
        ("a <thinking>b</thinking> c </thinking> d", True, "a \n c </thinking> d"),
        ("a</thinking> b <thinking>c", True, " b "),
        ("«SYS» a [/INST]", False, "«SYS» a [/INST]"),
    ],
)
def test_visible(text, carried, shown):
    assert without_thinking(text, carried) == shown


@pytest.mark.parametrize(
    ("text", "carried", "pieces"),
    [
        ("a <thinking>b</thinking> c", False, [(False, "a "), (True, "b"), (False, " c")]),
        ("<thinking>b", False, [(False, ""), (True, "b")]),
        ("a</thinking> b", True, [(True, "a"), (False, " b")]),
        ("a</thinking> b", False, [(False, "a</thinking> b")]),
        ("< / Thinking >a<thinking>b", True, [(True, ""), (False, "a"), (True, "b")]),
    ],
)
def test_segments(text, carried, pieces):
    found = [(thought, text[start:stop]) for thought, start, stop in split_segments(text, carried)]
    assert found == pieces


@given(st.lists(st.sampled_from(["<thinking>", "</thinking>", "a", " "]), max_size=12))
def test_nothing_thought_is_shown(pieces):
    """Without a carried block, what is shown is what a walk through the pieces shows."""
    depth, shown = False, ""
    for piece in pieces:
        if piece == "<thinking>":
            depth = True
        elif piece == "</thinking>":
            shown += "" if depth else piece
            depth = False
        else:
            shown += "" if depth else piece
    assert without_thinking("".join(pieces)).replace("\n", "") == shown
