"""Intervals of shares: by hand, and what they hold near 0."""

from __future__ import annotations

import math
import random

import pytest

from convbench.stats.means import Estimate, estimate_mean, share_interval, t_critical


def test_it_is_students_t_on_the_log_odds() -> None:
    found = estimate_mean((i // 2, float(i < 3)) for i in range(40))
    assert found is not None
    assert found.error is not None
    low, high = share_interval(found) or (1.0, 0.0)
    odds, margin = math.log(3 / 37), t_critical(19) * found.error / (3 / 40 * 37 / 40)
    assert math.log(low / (1 - low)) == pytest.approx(odds - margin)
    assert math.log(high / (1 - high)) == pytest.approx(odds + margin)


def test_what_was_never_seen_may_still_be_there() -> None:
    for mean, side in ((0.0, 0), (1.0, 1)):
        found = share_interval(Estimate(mean, 0.0, 120, 40, 39))
        assert found is not None
        assert found[side] == mean
        assert 0.05 < abs(found[1] - found[0]) < 0.12
    assert share_interval(Estimate(0.5, None, 3, 1, 0)) is None


def test_an_error_of_zero_leaves_the_mean_alone() -> None:
    """Two answers to each question, one right of each: every question has the same share."""
    even = estimate_mean((i // 2, float(i % 2)) for i in range(200))
    assert even is not None
    assert even.error == 0
    assert share_interval(even) == (0.5, 0.5)


def test_a_rare_share_is_held() -> None:
    """Student's t alone holds 3 % in 81 of 100 cases; the bench has more of each."""
    rng, held, plain = random.Random(0), 0, 0
    for _ in range(300):
        rows = [
            (g, float(rng.random() < level))
            for g in range(40)
            for level in [rng.betavariate(0.03 * 7 / 3, 0.97 * 7 / 3)]
            for _ in range(3)
        ]
        found = estimate_mean(rows)
        assert found is not None
        low, high = share_interval(found) or (1.0, 0.0)
        a, b = found.interval or (1.0, 0.0)
        held += low <= 0.03 <= high
        plain += a <= 0.03 <= b
    assert held >= 276  # 92 %
    assert plain < held - 10
