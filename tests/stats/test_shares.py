"""Intervals of shares: Wilson's, by hand, and what they hold near 0."""

from __future__ import annotations

import random

import pytest

from convbench.stats.estimate import Estimate, estimate
from convbench.stats.shares import share_interval
from convbench.stats.special import t_critical


def test_where_each_is_its_own_group_it_is_wilsons() -> None:
    found = estimate((i, float(i < 3)) for i in range(40))
    assert found is not None
    p, t, n = 3 / 40, t_critical(39), 39  # p (1 - p) / error^2 with the small-sample factor
    roots = share_interval(found)
    assert roots is not None
    for end in roots:  # the ends are where (p - end)^2 = t^2 end (1 - end) / n
        assert (p - end) ** 2 == pytest.approx(t * t * end * (1 - end) / n)


def test_what_was_never_seen_may_still_be_there() -> None:
    for mean, side in ((0.0, 0), (1.0, 1)):
        found = share_interval(Estimate(mean, 0.0, 120, 40, 39))
        assert found is not None
        assert found[side] == pytest.approx(mean)
        assert 0.05 < abs(found[1] - found[0]) < 0.12
    assert share_interval(Estimate(0.5, None, 3, 1, 0)) is None


def test_a_rare_share_is_held() -> None:
    """Student's t alone holds 5 % in 91 of 100 cases; the bench has more of each."""
    rng, held, plain = random.Random(0), 0, 0
    for _ in range(300):
        rows = [
            (g, float(rng.random() < level))
            for g in range(40)
            for level in [rng.betavariate(0.03 * 7 / 3, 0.97 * 7 / 3)]
            for _ in range(3)
        ]
        found = estimate(rows)
        assert found is not None
        low, high = share_interval(found) or (1.0, 0.0)
        a, b = found.interval or (1.0, 0.0)
        held += low <= 0.03 <= high
        plain += a <= 0.03 <= b
    assert held >= 276  # 92 %
    assert plain < held - 10
