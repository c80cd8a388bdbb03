"""Draws: each conversation with exactly its probability, as many as were asked for."""

import random

import pytest

from convbench.stats.draw import (
    draw_probabilities,
    draw_systematic,
    expected_distances,
    sampling_sizes,
    variance_saved,
)


def test_probabilities_add_up_and_none_is_above_one():
    found = draw_probabilities([1, 1, 1, 97], 2)
    assert found == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    assert draw_probabilities([1.0] * 10, 4) == pytest.approx([0.4] * 10)
    assert draw_probabilities([1.0, 2.0], 5) == [1.0, 1.0]
    assert sum(draw_probabilities([0, 0, 0, 0], 2)) == pytest.approx(2)
    with pytest.raises(ValueError, match="at least 1"):
        draw_probabilities([1.0], 0)


@pytest.mark.parametrize("along", [False, True])
def test_a_draw_has_its_probabilities_and_its_number(along):
    rng = random.Random(0)
    scores = [rng.random() for _ in range(30)]
    chances = draw_probabilities(sampling_sizes("score", scores), 9)
    counts = [0] * 30
    for _ in range(4000):
        taken = draw_systematic(chances, rng, scores if along else None)
        assert len(taken) == len(set(taken)) == 9
        for i in taken:
            counts[i] += 1
    for count, chance in zip(counts, chances, strict=True):
        assert abs(count / 4000 - chance) < 4.5 * (chance * (1 - chance) / 4000) ** 0.5


def test_sizes_of_each_design():
    assert (
        sampling_sizes("uniform", [1, 2, 3]) == sampling_sizes("stratified", [1, 2, 3]) == [1, 1, 1]
    )
    assert sampling_sizes("score", [1, 2, 3]) == [0.5, 1.0, 1.5]
    assert sampling_sizes("score", [7, 7]) == [1.0, 1.0]
    assert sampling_sizes("optimal", [1, 2], [1.0, 3.0]) == pytest.approx([0.6, 1.4])
    with pytest.raises(ValueError, match="expected the distances of people"):
        sampling_sizes("optimal", [1, 2])


def test_where_people_are_far_from_the_judge_more_is_drawn_and_variance_is_saved():
    rng = random.Random(1)
    scores = [rng.random() for _ in range(400)]
    told = [(s, rng.gauss(0, 0.1 if s < 0.75 else 2)) for s in scores[:80]]
    apart = expected_distances(scores, told)
    low = [a for a, s in zip(apart, scores, strict=True) if s < 0.7]
    high = [a for a, s in zip(apart, scores, strict=True) if s > 0.8]
    assert max(low) < min(high) / 2
    chances = draw_probabilities(sampling_sizes("optimal", scores, apart), 80)
    assert variance_saved(chances, apart) > 0.2
    assert variance_saved([0.2] * 400, apart) == pytest.approx(0)
    with pytest.raises(ValueError, match="no label"):
        expected_distances(scores, [])
