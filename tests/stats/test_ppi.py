"""Means that people's labels correct: closed forms, and intervals that hold what they say."""

import random
import statistics

import pytest

from convbench.stats.ppi import corrected_mean


def drawn(rng, groups, labelled, noise=0.5):
    """A score a group: (people's, the judge's of the same groups, the judge's of the others)."""
    truth = [rng.gauss(3, 1) for _ in range(groups)]
    told = [0.6 * value + rng.gauss(0, noise) + 2 for value in truth]
    return truth[:labelled], told[:labelled], told[labelled:]


def test_corrected_mean_is_the_published_estimator():
    people, judge, others = drawn(random.Random(0), 400, 80)
    found = corrected_mean(people, judge, others)
    y, f, rest = people, judge, others
    spread = statistics.variance([*f, *rest])
    lam = statistics.covariance(y, f) / ((1 + 80 / 320) * spread)
    assert found.mean == pytest.approx(
        statistics.mean(y) + lam * (statistics.mean(rest) - statistics.mean(f))
    )
    left = statistics.variance([a - lam * b for a, b in zip(y, f, strict=True)])
    assert found.error == pytest.approx((left / 80 + lam**2 * spread / 320) ** 0.5)
    assert (found.n, found.groups, found.df) == (80, 80, 79)
    alone = (statistics.variance(y) / 80) ** 0.5
    assert found.error < 0.85 * alone  # the judge is worth labels


def test_corrected_mean_without_help_of_the_judge_is_the_labels_alone():
    people, judge, others = drawn(random.Random(2), 100, 30)
    for found in (
        corrected_mean(people, judge, []),  # nothing else was judged
        corrected_mean(people, [7.0] * 30, [7.0] * len(others)),  # it says nothing
    ):
        assert found.mean == pytest.approx(statistics.mean(people))
        assert found.error == pytest.approx(statistics.stdev(people) / 30**0.5)
    assert corrected_mean(people[:2], judge[:2], judge[2:]).error is None


@pytest.mark.parametrize(("groups", "labelled"), [(100, 40), (300, 30)])
def test_intervals_of_corrected_means_cover_what_they_say(groups, labelled):
    rng = random.Random(4)
    inside = 0
    for _ in range(3000):
        low, high = corrected_mean(*drawn(rng, groups, labelled)).interval
        inside += low <= 3 <= high
    assert 0.94 <= inside / 3000 <= 0.96
