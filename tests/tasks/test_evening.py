"""Wrong options drawn by chance, evened out by what shows."""

from __future__ import annotations

from random import Random

import numpy as np

from convbench.tasks.evening import among, drawn, evened, standing


def sets(seed: int, lean: float, questions: int = 200) -> np.ndarray:
    """What shows in sets of which most have the gold above the middle."""
    return np.random.default_rng(seed).normal(lean, 1.0, (questions, 40, 3))


def test_the_first_of_alike_options_stands_in_the_middle() -> None:
    assert not standing(np.ones((4, 5))).any()


def test_a_place_is_counted_from_the_middle_with_ties_between() -> None:
    place, most, least = standing(np.array([[3.0], [1.0], [1.0], [3.0]]))
    assert np.allclose((place, most, least), (1 / 3, 0.25, -0.25))


def test_kinds_are_counted_beside_the_share_of_all() -> None:
    assert among(np.array([[1], [0], [1], [9]]), 3).tolist() == [-0.25, 0.5, -0.25]


def test_what_leans_is_evened_out_in_expectation() -> None:
    shown = sets(0, lean=0.8)
    chances = evened(shown)
    assert np.allclose(chances.sum(axis=1), 1)
    assert shown.mean() > 0.75
    assert abs(np.einsum("qs,qsl->l", chances, shown) / len(shown)).max() < 0.02


def test_what_does_not_lean_is_left_to_chance() -> None:
    chances = evened(sets(0, lean=0.0))
    assert chances.max() < 3 / 40


def test_draws_are_not_evened_out_to_the_exact_count() -> None:
    """The sum over half of the questions says nothing about the other half's."""
    found = []
    for seed in range(60):
        shown = sets(seed, lean=0.4, questions=60)
        took = drawn(shown, Random(seed))
        own = np.array([row[place, 0] for row, place in zip(shown, took, strict=True)])
        found.append((own[:30].sum(), own[30:].sum()))
    first, second = np.array(found).T
    assert np.corrcoef(first, second)[0, 1] > -0.5
