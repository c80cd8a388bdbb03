"""The statistics by hand, against scipy, and against the paper's own tables."""

import math
import random

import pytest

from convbench.stats.estimates import estimate, holm, t_critical, t_two_sided


def estimate_mean(pairs, kind="clustered"):
    """The estimate of (group, value) pairs."""
    groups, values = zip(*pairs, strict=True) if pairs else ((), ())
    return estimate(groups, values, kind)


def test_naive_is_the_papers_footnote():
    # Table 1, SWiFt on ARC: 0.7993 ± 0.0236 is 231 of 289 conversations, taken as independent.
    right = [("g", 1.0)] * 231 + [("g", 0.0)] * 58
    found = estimate_mean(right, "naive")
    assert round(found.mean, 4) == 0.7993
    assert found.error == pytest.approx(math.sqrt(0.7993 * 0.2007 / 289), abs=1e-5)
    assert round(found.error, 4) == 0.0236
    # Table 1, DPO: 0.6471 ± 0.0281.
    found = estimate_mean([("g", 1.0)] * 187 + [("g", 0.0)] * 102, "naive")
    assert (round(found.mean, 4), round(found.error, 4)) == (0.6471, 0.0281)


def test_clustered_by_hand():
    # Groups (1, 1), (1, 0), (0, 0): mean 1/2, sums of deviations 1, 0, -1.
    # SE = sqrt(3/2 * (1 + 0 + 1)) / 6 = sqrt(3) / 6.
    pairs = [("a", 1), ("a", 1), ("b", 1), ("b", 0), ("c", 0), ("c", 0)]
    found = estimate_mean(pairs)
    assert found.mean == 0.5
    assert found.error == pytest.approx(math.sqrt(3) / 6)
    assert (found.n, found.groups, found.df) == (6, 3, 2)
    # t with 2 degrees of freedom at 95%: 4.3027.
    low, high = found.interval
    assert (high - low) / 2 == pytest.approx(4.30265 * math.sqrt(3) / 6, rel=1e-5)
    naive = estimate_mean(pairs, "naive")
    assert (naive.error, naive.df) == (pytest.approx(math.sqrt(0.25 / 6)), 5)
    # Unequal groups: mean 2/4; deviations 1/2 + 1/2 - 1/2 and -1/2. sqrt(2/1 * 1/2) / 4 = 1/4.
    found = estimate_mean([("a", 1), ("a", 1), ("a", 0), ("b", 0)])
    assert found.error == pytest.approx(0.25)


def test_too_little_to_say():
    assert estimate_mean([]) is None
    one = estimate_mean([("a", 1), ("a", 0)])
    assert (one.mean, one.error, one.interval, one.p) == (0.5, None, None, None)
    same = estimate_mean([("a", 0.1), ("b", 0.1), ("c", 0.1)])
    assert same.error == 0
    assert same.p == 0
    assert estimate_mean([("a", 0), ("b", 0)]).p is None
    found = estimate(["a", "a", "b"], [1.0, None, 0.0])  # a missing value does not count
    assert (found.mean, found.n, found.groups) == (0.5, 2, 2)


def drawn(seed, groups=30):
    """Values in groups of unlike size that are alike within."""
    draw = random.Random(seed)
    centers = [draw.gauss(0, 1) for _ in range(groups)]
    return [(f"g{g}", c + draw.random()) for g, c in enumerate(centers) for _ in range(1 + g % 4)]


@pytest.mark.parametrize("seed", range(3))
def test_clustered_against_statsmodels(seed):
    models = pytest.importorskip("statsmodels.api")
    pairs = drawn(seed)
    names, values = zip(*pairs, strict=True)
    places = {"groups": [sorted(set(names)).index(name) for name in names]}
    fit = models.OLS(values, [1.0] * len(values)).fit(
        cov_type="cluster", cov_kwds=places, use_t=True
    )
    found = estimate_mean(pairs)
    assert (found.mean, found.error) == pytest.approx((fit.params[0], fit.bse[0]), rel=1e-9)
    assert found.interval == pytest.approx(tuple(fit.conf_int()[0]), rel=1e-9)
    assert found.p == pytest.approx(fit.pvalues[0], rel=1e-7)


def test_holm_against_statsmodels():
    tests = pytest.importorskip("statsmodels.stats.multitest")
    draw = random.Random(1)
    for count in (1, 2, 7, 20):
        p = [draw.random() ** 3 for _ in range(count)]
        expected = tests.multipletests(p, method="holm")[1]
        assert holm(p) == pytest.approx(list(expected), rel=1e-12)


def test_student_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    for df in (1, 2, 5, 30, 96, 99, 1000, 100_000):
        for t in (0.0, 0.1, 1.0, 1.96, 4.3, 12.0, 60.0):
            expected = 2 * stats.t.sf(t, df)
            assert t_two_sided(t, df) == pytest.approx(expected, rel=1e-9, abs=1e-300)
            assert t_two_sided(-t, df) == t_two_sided(t, df)
        assert t_critical(df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-9)


def test_holm_by_hand():
    # Sorted .01, .03, .04: 3*.01 = .03, 2*.03 = .06, max(.06, .04) = .06.
    assert holm([0.04, 0.01, None, 0.03]) == pytest.approx([0.06, 0.03, None, 0.06])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.04, 0.01, 0.03], ["a", "b", "a"]) == [0.06, 0.01, 0.06]  # within each family
    assert holm([]) == []
