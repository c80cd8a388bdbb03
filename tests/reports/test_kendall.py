"""Kendall's tau on orders written by hand, ties too, and its intervals."""

from itertools import permutations

import pytest

from convbench.stats.agreement import permutation_p, rank_agreement, tau_b


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [40, 30, 20, 10], -1.0),
        # One neighbouring pair of six is swapped: 5 agree, 1 does not.
        ([1, 2, 3, 4], [1, 3, 2, 4], 4 / 6),
        # One of six pairs is tied in the first: 5 / sqrt(5 * 6).
        ([1, 1, 2, 3], [1, 2, 3, 4], 5 / 30**0.5),
        # The same pair is tied in both: all pairs that can agree do.
        ([1, 1, 2, 3], [5, 5, 6, 7], 1.0),
        # Tied in either once, elsewhere: 4 agree of sqrt(5 * 5).
        ([1, 1, 2, 3], [1, 2, 3, 3], 4 / 5),
        ([1, 2], [2, 1], -1.0),
    ],
)
def test_tau_by_hand(first, second, tau):
    assert tau_b(first, second) == pytest.approx(tau)
    assert tau_b(second, first) == pytest.approx(tau)


@pytest.mark.parametrize("order", [[], [1.0], [2.0, 2.0, 2.0]])
def test_no_order_no_tau(order):
    assert tau_b(order, list(range(len(order)))) is None
    assert rank_agreement(order, list(range(len(order)))).p is None


def test_tau_is_what_scipy_says():
    kendalltau = pytest.importorskip("scipy.stats").kendalltau
    for order in set(permutations([1, 1, 2, 3])):
        expected = kendalltau(order, [1, 2, 2, 4]).statistic
        assert tau_b(order, [1, 2, 2, 4]) == pytest.approx(expected)


def test_the_exact_p_counts_orders():
    # One of 3! orders agrees wholly; three of the six agree at least as well as one swap.
    assert permutation_p([1, 2, 3], [1, 2, 3]) == pytest.approx(1 / 6)
    assert permutation_p([1, 3, 2], [1, 2, 3]) == pytest.approx(3 / 6)
    assert permutation_p([3, 2, 1], [1, 2, 3]) == 1.0
    assert permutation_p([1, 2], [1, 2]) == 0.5
    assert permutation_p(list(range(8)), list(range(8))) is None


def test_the_interval_holds_what_resampling_gives():
    sure = rank_agreement([1, 2, 3], [1, 2, 3], lambda rng: [1, 2, 3])
    assert (sure.tau, sure.low, sure.high) == (1.0, 1.0, 1.0)
    # A coin turns the order round: both ends are in the interval, and it is the same each time.
    turned = [
        rank_agreement([1, 2, 3], [1, 2, 3], lambda rng: rng.choice([[1, 2, 3], [3, 2, 1]]))
        for _ in range(2)
    ]
    assert (turned[0].low, turned[0].high) == (-1.0, 1.0)
    assert turned[0] == turned[1]
    # Too many resamplings that say nothing leave no interval.
    tied = rank_agreement([1, 2], [1, 2], lambda rng: rng.choice([[1, 2], [1, 1]]))
    assert (tied.tau, tied.low, tied.high) == (1.0, None, None)
