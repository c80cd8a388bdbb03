"""Agreement of judges, against scipy, scikit-learn and krippendorff."""

import math
import random

import pytest

from convbench.stats.agreement import agreement, krippendorff_alpha, spearman, weighted_kappa
from tests.support.later import later

krippendorff = later("krippendorff")
stats = later("scipy.stats")
metrics = later("sklearn.metrics")


def two_judges(seed, count=200):
    rng = random.Random(seed)
    first = [rng.randrange(11) for _ in range(count)]
    return first, [min(10, max(0, score + rng.randrange(-3, 4))) for score in first]


@pytest.mark.parametrize("seed", range(3))
def test_agreement_equals_other_libraries(seed):
    first, second = two_judges(seed)
    kappa = metrics.cohen_kappa_score(first, second, weights="quadratic", labels=list(range(11)))
    assert weighted_kappa(first, second) == pytest.approx(kappa, abs=1e-12)
    rho = stats.spearmanr(first, second).statistic
    assert spearman(first, second) == pytest.approx(rho, abs=1e-12)
    rng = random.Random(seed)
    rows = [
        (a, b, math.nan if rng.random() < 0.4 else a) for a, b in zip(first, second, strict=True)
    ]
    alpha = krippendorff.alpha(list(zip(*rows, strict=True)), level_of_measurement="interval")
    assert krippendorff_alpha(rows) == pytest.approx(alpha, abs=1e-12)


def test_alpha_of_the_published_example():
    """Krippendorff, "Computing Krippendorff's alpha-reliability" (2011): four raters, twelve units,
    .849 at the interval level."""
    no = math.nan
    raters = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, no, no, no],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, no, 3],
        [no, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, no],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, no],
    ]
    assert round(krippendorff_alpha(list(zip(*raters, strict=True))), 3) == 0.849


def test_agreement_by_hand():
    found = agreement(["a", "a", "b", "c"], [1, 2, 3, math.nan], [1, 1, 5, 2])
    assert (found.common, found.equal) == (3, 1 / 3)
    assert found.difference.mean == pytest.approx(-1 / 3)
    assert (found.difference.n, found.difference.groups) == (3, 2)


def test_agreement_that_is_undefined_is_none():
    assert agreement([], [], []) is None
    assert weighted_kappa([], []) is None
    assert weighted_kappa([3, 3], [3, 3]) is None
    assert weighted_kappa([3, 3], [4, 4]) == 0
    assert spearman([1, 2], [5, 5]) is None
    assert krippendorff_alpha([(1, math.nan)]) is None
    assert krippendorff_alpha([(1, 1), (1, 1)]) is None
