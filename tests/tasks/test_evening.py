"""Wrong options drawn by chance, evened out by what shows."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from convbench.tasks.distractors import balanced_chances, draw_sets, kind_features, rank_features


def sets(seed: int, lean: float, questions: int = 200) -> np.ndarray:
    """What shows in sets of which most have the gold above the middle."""
    return np.random.default_rng(seed).normal(lean, 1.0, (questions, 40, 3))


def test_the_first_of_alike_options_stands_in_the_middle() -> None:
    assert not rank_features(np.ones((4, 5))).any()


def test_a_place_is_counted_from_the_middle_with_ties_between() -> None:
    place, most, least = rank_features(np.array([[3.0], [1.0], [1.0], [3.0]]))
    assert np.allclose((place, most, least), (1 / 3, 0.25, -0.25))


def test_kinds_are_counted_beside_the_share_of_all() -> None:
    assert kind_features(np.array([[1], [0], [1], [9]]), 3).tolist() == [-0.25, 0.5, -0.25]


def test_what_leans_is_evened_out_in_expectation() -> None:
    shown = sets(0, lean=0.8)
    chances = balanced_chances(shown)
    assert np.allclose(chances.sum(axis=1), 1)
    assert shown.mean() > 0.75
    assert abs(np.einsum("qs,qsl->l", chances, shown) / len(shown)).max() < 0.02


def test_what_does_not_lean_is_left_to_chance() -> None:
    chances = balanced_chances(sets(0, lean=0.0))
    assert chances.max() < 3 / 40


@pytest.mark.parametrize("placed", [True, False])
def test_places_are_evened_out_by_themselves(placed: bool) -> None:
    """Of places whose right options lean each its own way, all others tell which way one does not,
    where only the whole is evened out: then they lean the other way together."""
    places = [str(number // 10) for number in range(200)]
    off = []
    for seed in range(20):
        leans = np.random.default_rng(seed).normal(0, 0.8, 20).repeat(10)
        shown = sets(100 + seed, lean=0.0) + leans[:, None, None]
        took = draw_sets(shown, Random(seed), places if placed else ())
        own = np.array([row[place] for row, place in zip(shown, took, strict=True)])
        off.append(np.abs(own.reshape(20, 10, -1).mean(axis=1)).mean())
        assert abs(own.mean()) < 0.2, "the whole is even in any case"
    assert np.mean(off) < 0.4 if placed else np.mean(off) > 0.6, np.mean(off)


def test_what_leans_in_all_places_is_evened_out_beside_what_leans_in_one() -> None:
    """Of one rule over all and then one of each place, the latter undo a part of the former."""
    places = [str(number // 10) for number in range(200)]
    off = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        leans = rng.normal(0.3, 1.0, (20, 10)).repeat(10, axis=0)
        shown = rng.normal(0, 1, (200, 40, 10)) + leans[:, None, :]
        off.append(
            np.einsum("qs,qsl->l", balanced_chances(shown, places), shown).mean() / len(shown)
        )
    assert np.mean(off) < 0.075, f"{np.mean(off):.3f}, and 0.089 one after the other"


def test_draws_are_not_evened_out_to_the_exact_count() -> None:
    """The sum over half of the questions says nothing about the other half's."""
    found = []
    for seed in range(60):
        shown = sets(seed, lean=0.4, questions=60)
        took = draw_sets(shown, Random(seed))
        own = np.array([row[place, 0] for row, place in zip(shown, took, strict=True)])
        found.append((own[:30].sum(), own[30:].sum()))
    first, second = np.array(found).T
    assert np.corrcoef(first, second)[0, 1] > -0.5
