"""Views and their vote: every turn comes back, and the order of answers does not count."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convbench.judges.few_shot.views import (
    KINDS,
    TURNED,
    UNCHANGED,
    by_column,
    by_row,
    kind_candidates,
    make_views,
    vote_attempts,
)
from convbench.tasks.arc_agi.grids import Grid, Pair

A: Grid = ((1, 2), (3, 4))
B: Grid = ((1, 2), (3, 5))
C: Grid = ((1, 2), (6, 4))
D: Grid = ((7,),)
SHOWN = tuple(Pair(((i, i + 1),), ((i + 1, i),)) for i in range(3))


def test_views_of_three_demonstrations() -> None:
    """Each of 3 subsets, itself and 2 shuffles, in each of 6 ways to look."""
    found = make_views(SHOWN, A, 0)
    assert len(found) == 3 * 3 * 6
    assert {kind: sum(v.kind == kind for v in found) for kind in KINDS} == dict.fromkeys(KINDS, 9)
    plain = [view.puzzle for view in found if view.kind == UNCHANGED]
    assert {frozenset(p.shown) for p in plain} == {frozenset(SHOWN) - {one} for one in SHOWN}
    assert found == make_views(SHOWN, A, 0)


@pytest.mark.parametrize("many", [1, 2, 6])
def test_a_single_demonstration_is_not_left_out(many: int) -> None:
    shown = tuple(Pair(((i,),), ((i,),)) for i in range(many))
    found = make_views(shown, A, 0)
    assert len(found) == many * 3 * 6
    assert all(len(view.puzzle.shown) == max(1, many - 1) for view in found)


@pytest.mark.parametrize("kind", KINDS)
def test_every_view_comes_back(kind: str) -> None:
    """What a view asks about is the test, turned; turned back it is the test again."""
    test: Grid = ((1, 2, 3), (4, 5, 6))
    for view in (v for v in make_views(SHOWN, test, 0) if v.kind == kind):
        assert view.turn_back(view.puzzle.test.input) == test
        assert {(view.turn_back(p.input), view.turn_back(p.output)) for p in view.puzzle.shown} < {
            (p.input, p.output) for p in SHOWN
        }
    assert set(TURNED) == set(KINDS) - {UNCHANGED}


def test_the_majority_by_row_and_by_column() -> None:
    """B and C share no majority with each other, but both with A: by cells it is A."""
    assert by_row([A, B, B, C, D]) == ((1, 2), (3, 5))
    assert by_row([B, C]) == ((1, 2), (3, 5)), "a tie goes to the smaller row"
    assert by_column([A, A, B, C]) == A
    assert by_column([((1, 9), (3, 9)), ((1, 8), (3, 8)), ((2, 8), (2, 8))]) == ((1, 8), (3, 8))


def test_candidates_are_the_commonest_then_the_made_ones() -> None:
    assert kind_candidates([A, A, B, C, D]) == [A, B, C]
    assert kind_candidates([A]) == [A]
    one, two = ((1, 1), (2, 2)), ((1, 3), (2, 2))
    three = ((1, 1), (4, 4))
    assert kind_candidates([one, two, three])[:3] == sorted([one, two, three])


def test_the_kinds_vote_and_two_attempts_stay() -> None:
    found = vote_attempts({UNCHANGED: [A], "transpose": [B], "rotate-90": [B], "flip-rows": [D]})
    assert found[0] == B
    assert found[1] == A, "a tie between A and D goes to the plain view"
    assert vote_attempts({UNCHANGED: [], "transpose": []}) == ()
    assert vote_attempts({UNCHANGED: [A]}, attempts=1) == (A,)


def test_a_tie_goes_to_what_more_single_views_say() -> None:
    assert vote_attempts({"transpose": [B, A, A]})[0] == A
    assert vote_attempts({"transpose": [B], "rotate-90": [A], "flip-rows": [A, B, B]})[0] == B


grids = st.sampled_from([A, B, C, D, ((1, 5), (3, 4)), ((0, 0, 0),)])


@given(st.dictionaries(st.sampled_from(KINDS), st.lists(grids, max_size=6)), st.integers(0, 99))
def test_the_order_of_answers_does_not_count(answers: dict[str, list[Grid]], seed: int) -> None:
    """A, B = B, A: within a kind of view, and of the kinds."""
    stream = random.Random(seed)
    other = {kind: stream.sample(found, len(found)) for kind, found in answers.items()}
    names = stream.sample(sorted(other), len(other))
    assert vote_attempts(answers) == vote_attempts({kind: other[kind] for kind in names})


@given(st.dictionaries(st.sampled_from(KINDS), st.lists(grids, min_size=1, max_size=6), min_size=1))
def test_two_different_attempts_at_most(answers: dict[str, list[Grid]]) -> None:
    found = vote_attempts(answers)
    assert 1 <= len(found) <= 2
    assert len(set(found)) == len(found)
    assert vote_attempts({kind: [A] * len(said) for kind, said in answers.items()}) == (A,)
