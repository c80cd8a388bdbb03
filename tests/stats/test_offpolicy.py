"""Off-policy estimates against sums by hand, a world that can be enumerated, and their refusals."""

from __future__ import annotations

import math
import random

import pytest

from convbench.stats.offpolicy import (
    LoggedReward,
    direct_value,
    doubly_robust,
    leave_one_out_means,
    measure_overlap,
    pareto_shape,
    snips_value,
    value_gain,
)
from tests.helpers.bandit import World


def test_by_hand() -> None:
    draws = [
        LoggedReward("a", math.log(2), 1.0),
        LoggedReward("a", 0.0, 0.0),
        LoggedReward("b", math.log(3), 0.5),
        LoggedReward("b", math.log(0.5), 0.0),
    ]
    assert snips_value(draws).mean == pytest.approx((2 * 1 + 3 * 0.5) / 6.5)
    assert value_gain(draws).mean == pytest.approx(3.5 / 6.5 - 1.5 / 4)
    seen = measure_overlap(draws)
    assert seen.effective == pytest.approx(6.5**2 / (4 + 1 + 9 + 0.25))
    assert seen.effective_groups == pytest.approx(6.5**2 / (3**2 + 3.5**2))
    assert (seen.mean_weight, seen.largest) == pytest.approx((6.5 / 4, 3 / 6.5))
    assert leave_one_out_means(draws) == [0.0, 1.0, 0.0, 0.5]
    apart = [1 - 0, 0 - 1, 0.5 - 0, 0 - 0.5]
    change = sum(w * a for w, a in zip([2, 1, 3, 0.5], apart, strict=True)) / 6.5
    assert doubly_robust(draws).mean == pytest.approx(0.375 + change)
    # The jackknife: what the estimate moves without each question.
    without = {g: snips_value([d for d in draws if d.group != g]).mean for g in "ab"}
    error = math.sqrt(sum((one - 3.5 / 6.5) ** 2 for one in without.values()) / 2)
    assert snips_value(draws).error == pytest.approx(error)


def test_the_same_policy_is_the_logs_own_mean_and_a_scale_of_weights_changes_nothing() -> None:
    log = [LoggedReward(d.group, 0.0, d.reward) for d in World(50, 1.0, 0).log(60, 3, 0)]
    own = direct_value((d.group, d.reward) for d in log)
    assert own is not None
    assert snips_value(log).mean == pytest.approx(own.mean)
    assert snips_value(log).error == pytest.approx(own.error)
    assert value_gain(log).mean == pytest.approx(0) == value_gain(log).error
    moved = [LoggedReward(d.group, d.log_ratio + 900, d.reward) for d in log]
    assert snips_value(moved) == snips_value(log)
    assert measure_overlap(log).unknown_reasons() == []


def test_a_perfect_reward_model_leaves_the_direct_error_alone() -> None:
    world = World(80, 1.0, 1)
    log = [LoggedReward(d.group, d.log_ratio, d.reward, d.reward) for d in world.log(80, 2, 1)]
    sampled = [(d.group, d.reward) for d in world.log(80, 2, 2)]
    told, plain = doubly_robust(log, sampled), direct_value(sampled)
    assert plain is not None
    assert (told.mean, told.error) == (pytest.approx(plain.mean), pytest.approx(plain.error))


def test_intervals_hold_the_truth_where_the_log_tells() -> None:
    """Small here; the large simulation, on the embedded world too, is `tests.bench.estimate`."""
    world = World(400, 1.5, 3)
    truth, held, known = world.value(), {"snips": 0, "robust": 0}, 0
    for seed in range(160):
        log = world.log(60, 2, seed)
        if measure_overlap(log).unknown_reasons():
            continue
        known += 1
        for name, rule in (("snips", snips_value), ("robust", doubly_robust)):
            interval = rule(log).interval
            assert interval is not None
            held[name] += interval[0] <= truth <= interval[1]
    assert known > 140
    for name, count in held.items():
        assert 0.9 < count / known <= 1, name


@pytest.mark.parametrize(("apart", "why"), [(14.0, "expected at least 30"), (0.5, "")])
def test_a_log_too_far_from_the_policy_says_so(apart: float, why: str) -> None:
    told = measure_overlap(World(400, apart, 4).log(60, 1, 4)).unknown_reasons()
    assert why in "; ".join(told)
    assert bool(told) == bool(why)


def test_a_policy_that_says_what_the_log_has_not_is_told_by_its_weights_mean() -> None:
    """All weights alike and small: nothing else would show it."""
    log = [LoggedReward(f"{n}", -3 + 0.01 * (n % 5), 0.5) for n in range(200)]
    assert "the policy says things that the log does not contain" in "; ".join(
        measure_overlap(log).unknown_reasons()
    )


def test_pareto_shape_of_known_tails() -> None:
    """As the likeliest shape, which scipy looks for, drawn to 0.5 by ten values."""
    from scipy.stats import genpareto

    draw = random.Random(0)
    for shape in (0.3, 0.9):
        values = sorted((draw.random() ** -shape - 1) / shape for _ in range(4000))
        m = math.ceil(3 * math.sqrt(4000))
        likeliest = genpareto.fit([v - values[-m - 1] for v in values[-m:]], floc=0)[0]
        assert pareto_shape(values) == pytest.approx((m * likeliest + 5) / (m + 10), abs=0.03)
    assert pareto_shape([1.0] * 100) is None
    assert pareto_shape([1.0, 2.0, 3.0]) is None
    heavy = [LoggedReward(f"{n}", 1.6 * math.log(1 / draw.random()), 0.5) for n in range(4000)]
    assert "Pareto shape" in "; ".join(measure_overlap(heavy).unknown_reasons())
