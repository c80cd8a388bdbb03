"""Corrected means and differences: closed forms, a real set of judged and labelled answers, and
intervals that hold what they say."""

import math
import random
import statistics

import pyarrow.parquet as parquet
import pytest

from convbench.stats.covariates import mean_drift
from convbench.stats.means import estimate_mean
from convbench.stats.ppi import (
    ScoredUnit,
    check_transport,
    corrected_difference,
    corrected_mean,
    weighted_mean,
)
from tests.helpers.excerpts import EXCERPTS, SHARED, named, rows, sources
from tests.helpers.simulate import labelled, talks


def test_without_groups_and_with_even_weights_it_is_the_published_estimator():
    """PPI++ (arXiv 2311.01453): mean, and lam = cov(Y, f) / ((1 + n/N) var f) at n << N."""
    rng = random.Random(0)
    units = []
    for i in range(4000):
        gold = rng.gauss(3, 1)
        judge = 0.6 * gold + rng.gauss(0, 0.5) + 2
        units.append(ScoredUnit(str(i), judge, gold if i < 200 else None))
    found = corrected_mean(units)
    gold = [u.gold for u in units if u.gold is not None]
    told = [u.judge for u in units if u.gold is not None]
    every = [u.judge for u in units]
    lam = statistics.covariance(gold, told) / statistics.variance(told)
    assert found.power == pytest.approx(lam, abs=0.02)
    assert found.estimate.mean == pytest.approx(
        statistics.mean(gold) + found.power * (statistics.mean(every) - statistics.mean(told))
    )
    rest = statistics.variance([y - found.power * f for y, f in zip(gold, told, strict=True)])
    # Labelled are drawn from the same conversations: the rest's variance is over n, and what the
    # judge explains over N.
    error = math.sqrt(rest / 200 + (statistics.variance(gold) - rest) / 4000)
    assert found.estimate.error == pytest.approx(error, rel=0.02)
    assert found.estimate.df == 199
    assert found.estimate.n == 200
    assert found.bias.mean == pytest.approx(statistics.mean(told) - statistics.mean(gold))
    assert found.labels_saved == pytest.approx(
        200 * ((found.people.error / found.estimate.error) ** 2 - 1)
    )
    assert found.labels_saved > 100


def test_labels_of_everything_are_the_labels_alone_and_of_nothing_are_nothing():
    rng = random.Random(1)
    units = labelled(rng, talks(rng, 40, 2), 80)
    found = corrected_mean(units)
    assert found.estimate.mean == pytest.approx(statistics.mean(u.gold for u in units))
    assert corrected_mean([ScoredUnit(u.group, u.judge) for u in units]) is None
    assert (
        corrected_mean(
            [ScoredUnit("one", 1.0, 1.0), ScoredUnit("one", 2.0, 2.0), ScoredUnit("two", 3.0)]
        )
        is None
    )


def test_a_judge_that_says_nothing_or_is_right_moves_lam_to_its_ends():
    rng = random.Random(2)
    gold = [rng.random() for _ in range(300)]
    right = corrected_mean(
        [ScoredUnit(str(i), y, y if i < 60 else None) for i, y in enumerate(gold)]
    )
    assert right.power == pytest.approx(1, abs=0.01)
    assert right.estimate.mean == pytest.approx(statistics.mean(gold), abs=1e-3)
    noise = [ScoredUnit(str(i), rng.random(), y if i < 60 else None) for i, y in enumerate(gold)]
    assert abs(corrected_mean(noise).power) < 0.3
    constant = corrected_mean(
        [ScoredUnit(str(i), 5.0, y if i < 60 else None) for i, y in enumerate(gold)]
    )
    assert constant.power == 0
    assert constant.estimate.mean == pytest.approx(statistics.mean(gold[:60]))


def test_weights_undo_an_uneven_draw():
    rng = random.Random(3)
    found, plain = [], []
    for _ in range(100):
        units = labelled(rng, talks(rng, 60, 2), 40, uneven=True)
        found.append(corrected_mean(units).people.mean)
        plain.append(statistics.mean(u.gold for u in units if u.is_labelled))
    assert abs(statistics.mean(found)) < 0.04
    assert statistics.mean(plain) > 0.08


@pytest.mark.parametrize("uneven", [False, True])
def test_intervals_hold_what_they_say(uneven):
    rng = random.Random(4)
    held = {"mean": 0, "bias": 0, "people": 0}
    for _ in range(150):
        found = corrected_mean(labelled(rng, talks(rng, 70, 2), 50, uneven=uneven))
        for name, of, true in (
            ("mean", found.estimate, 0.0), ("bias", found.bias, 0.5), ("people", found.people, 0.0)
        ):  # fmt: skip
            low, high = of.interval
            held[name] += low <= true <= high
    # 4 standard deviations of 150 throws at 95 %.
    assert all(abs(count / 150 - 0.95) < 0.07 for count in held.values()), held


def test_a_difference_takes_off_the_bias_that_the_trained_policy_won():
    """Both are as good; the judge pays the second 0.8 more. Shared questions cancel."""
    rng, held, raw = random.Random(5), 0, 0
    for _ in range(120):
        level = [rng.gauss(0, 2) for _ in range(70)]
        one = labelled(rng, talks(rng, 70, 2, shared=level), 50)
        two = labelled(rng, talks(rng, 70, 2, shared=level, bias=1.3), 50)
        found = corrected_difference(one, two)
        low, high = found.interval
        held += low <= 0 <= high
        raw += statistics.mean(u.judge for u in two) - statistics.mean(u.judge for u in one) > 0.5
    assert raw == 120
    assert abs(held / 120 - 0.95) < 0.08
    both = corrected_difference(one, one)
    assert both.mean == pytest.approx(0, abs=1e-9)
    assert both.error == 0


def test_weighted_labels_agree_with_the_clustered_mean_of_all_estimates():
    rng = random.Random(6)
    units = [ScoredUnit(str(i % 50), 0.0, rng.gauss(i % 50 / 25, 1)) for i in range(150)]
    mine, theirs = weighted_mean(units), estimate_mean((u.group, u.gold) for u in units)
    assert mine.mean == pytest.approx(theirs.mean)
    # A jackknife's factor, G / (G - 1), in the place of its root.
    assert mine.error == pytest.approx(theirs.error * math.sqrt(50 / 49))


def test_transport_of_the_judges_bias():
    def policy(bias, labels, seed, scale=1.0):
        rng = random.Random(seed)
        return labelled(rng, talks(rng, 150, 2, bias=bias), labels) if labels else [
            ScoredUnit(g, scale * f) for g, f, _ in talks(rng, 150, 2, bias=bias)
        ]  # fmt: skip

    base = policy(0.5, 150, 1)
    assert check_transport(base, policy(0.5, 150, 2), scale=10).passed == "PASS"
    assert check_transport(base, policy(1.5, 150, 3), scale=10).passed == "FAIL"
    assert check_transport(base, policy(0.5, 12, 4), scale=4).passed == "UNKNOWN"
    assert check_transport(base, policy(0.5, 0, 5), scale=10).passed == "UNKNOWN"
    beyond = check_transport(base, policy(0.5, 0, 6, scale=9), scale=10)
    assert beyond.passed == "FAIL"
    assert "outside the range" in beyond.why
    assert check_transport(policy(0.5, 5, 7), base, scale=10).passed == "UNKNOWN"


def test_drift_is_in_standard_deviations_of_the_first():
    found = mean_drift([(str(i), float(i % 2), float(i % 2) + 1) for i in range(100)])
    spread = statistics.pstdev([i % 2 for i in range(100)])
    assert found.mean == pytest.approx(1 / spread)
    assert found.error == 0
    assert mean_drift([]) is None
    assert mean_drift([("a", 1.0, 1.0), ("b", 1.0, 1.0)]).mean == 0
    assert mean_drift([("a", 1.0, 1.0), ("b", 1.0, 2.0)]) is None


@pytest.mark.parametrize("real", sources("data/judges/arena_sample.parquet"), ids=named)
def test_on_stored_judgments_of_real_answers(real):
    """1,000 answers with a judge's score, 480 of them labelled: labels of a tenth give the gold
    mean, and a narrower interval than without the judge."""
    found = arena(real)
    base = [r for r in found if r["set"] == "draws" and r["policy"] == "base"]
    gold = [(r["judge"], r["oracle"]) for r in base if None not in (r["judge"], r["oracle"])]
    if not real:  # a few rows of the same shape: they are read, and there is nothing to estimate
        assert len(gold) < 3
        return
    assert len(gold) == 480
    true = statistics.mean(y for _, y in gold)
    rng, held, naive, narrower = random.Random(7), 0, 0, []
    for _ in range(60):
        drawn = [rng.choice(gold) for _ in range(1000)]
        found = corrected_mean(
            [ScoredUnit(str(i), f, y if i < 100 else None) for i, (f, y) in enumerate(drawn)]
        )
        low, high = found.estimate.interval
        held += low <= true <= high
        naive += found.raw.interval[0] <= true <= found.raw.interval[1]
        narrower.append(1 - found.estimate.margin / found.people.margin)
    assert naive == 0  # the judge alone is never right
    assert abs(held / 60 - 0.95) < 0.1
    assert 0.06 < statistics.mean(narrower) < 0.09


def arena(real):
    if not real:
        return list(rows(EXCERPTS / "judges" / "arena_sample.jsonl"))
    found = parquet.read_table(SHARED / "data/judges/arena_sample.parquet").to_pylist()
    return [{k: None if v != v else v for k, v in row.items()} for row in found]
