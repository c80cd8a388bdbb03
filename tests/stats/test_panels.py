"""What a panel is worth and what moves a judge: by hand, and on judges of known leanings."""

from __future__ import annotations

import random

import pytest

from convbench.stats.agreement import effective_number, effective_votes
from convbench.stats.covariates import length_bias
from convbench.stats.means import estimate_mean, jackknife
from tests.stats import panels


def test_a_jackknifed_mean_of_equal_groups_is_the_clustered_one() -> None:
    rows = [(str(k // 3), float((k * 7) % 5)) for k in range(30)]
    ours = jackknife(((group, (1.0, x)) for group, x in rows), lambda s: s[1] / s[0])
    theirs = estimate_mean(rows)
    assert ours is not None
    assert theirs is not None
    assert (ours.mean, ours.error, ours.df) == pytest.approx((theirs.mean, theirs.error, 9))


def test_worth_is_kishs_number() -> None:
    assert effective_number(9, 0.0) == 9
    assert effective_number(9, 1.0) == 1
    assert effective_number(9, 0.4375) == pytest.approx(2.0), "nine judges, two votes"
    assert effective_number(2, -1.0) == 4, "errors that cancel are bounded"


def test_votes_of_judges_that_copy_each_other_are_one() -> None:
    rng = random.Random(1)
    errors = [(str(k // 2), x) for k in range(60) for x in [rng.gauss(0, 1)]]
    copied = effective_votes([(group, [x, x + 0.5, 2 * x]) for group, x in errors])
    assert copied is not None
    assert copied.votes == pytest.approx(1.0, abs=1e-4)
    apart = effective_votes([(group, [x, rng.gauss(0, 1)]) for group, x in errors])
    assert apart is not None
    assert apart.low is not None
    assert apart.high is not None
    assert apart.low < 2 < apart.high
    assert effective_votes([("a", [1.0, 2.0])] * 5) is None, "errors that never vary"
    assert effective_votes([("a", [1.0])]) is None
    assert effective_votes([]) is None


def test_votes_are_found_on_judges_of_a_known_correlation() -> None:
    found = effective_votes(panels.errors(random.Random(2), 400, 3, 3))
    assert found is not None
    assert found.correlation == pytest.approx(panels.CORRELATION, abs=0.06)
    assert found.low is not None
    assert found.high is not None
    assert found.low < effective_number(3, panels.CORRELATION) < found.high


def test_leanings_are_found_and_none_is_none() -> None:
    rows = panels.leans(random.Random(3), 300, 4)
    length = length_bias((group, words, lean) for group, _, words, lean in rows)
    assert length is not None
    assert length.interval is not None
    assert 0 < length.interval[0] < panels.TWICE < length.interval[1]
    assert length_bias([("a", 80, 0.3), ("b", 80, 0.1), ("c", 80, 0.2)]) is None
    by_hand = length_bias([("a", 1, 0.0), ("b", 2, 1.0), ("c", 4, 2.0)])
    assert by_hand is not None
    assert by_hand.mean == pytest.approx(1.0)
