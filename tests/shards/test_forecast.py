"""The foreseen hours are those of a simulation whose processes fail, shard by shard."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from convbench.shards.forecast import LOST_A_DAY, START_S, assumed_rates, forecast_shards, makespan
from convbench.util.usage_estimate import Tokens


def simulate(
    count: int, at_once: int, shard_s: float, losses_s: float, restart_s: float, seed: int
) -> float:
    """Play the events: a place takes a shard; where its process is lost it is started again after a
    while, and goes on with what was done."""
    draw = random.Random(seed)
    places = [0.0] * at_once  # when each is free
    for _ in range(count):
        now, left = heapq.heappop(places), shard_s
        while (lasts := draw.expovariate(losses_s) if losses_s else math.inf) < left:
            now, left = now + lasts + restart_s, left - lasts
        heapq.heappush(places, now + left)
    return max(places)


@pytest.mark.parametrize(
    ("count", "at_once", "shard_s", "losses_s"),
    [
        (64, 8, 600.0, 0.0),
        (64, 8, 600.0, 1 / 86_400),
        (64, 8, 600.0, 1 / 3600),
        (1000, 50, 300.0, 1 / 7200),
        (4000, 200, 900.0, 1 / 14_400),
        (30, 7, 1200.0, 1 / 10_000),
    ],
)
def test_the_formula_is_near_the_mean_of_the_simulation(
    count: int, at_once: int, shard_s: float, losses_s: float
) -> None:
    hours = makespan(count, at_once, shard_s, losses_s, 60.0)
    played = [simulate(count, at_once, shard_s, losses_s, 60.0, n) for n in range(12)]
    mean = sum(played) / len(played)
    assert hours == pytest.approx(mean, rel=0.12), (hours, mean)


def test_a_billion_conversations_are_arithmetic() -> None:
    many = Tokens(
        conversations=10**9, calls=3 * 10**9, prompt_tokens=10**12, reply_tokens=3 * 10**11,
        usd=150_000.0,
    )  # fmt: skip
    free = forecast_shards(many, rates=assumed_rates(64), count=100_000, at_once=1000)
    assert free.hours == pytest.approx((3 * 10**9 / (1000 * 32) + 100 * START_S) / 3600, rel=0.01)
    assert free.hours < free.hours_with_losses < 1.1 * free.hours
    assert free.calls_min == pytest.approx(60 * 32_000)
    assert free.tokens_min == pytest.approx(free.calls_min * 1.3e12 / 3e9)
    capped = forecast_shards(
        many, rates=assumed_rates(64), count=100_000, at_once=1000, most_s=1000.0
    )
    assert capped.calls_min == pytest.approx(60_000)
    assert capped.hours == pytest.approx(32 * free.hours, rel=0.01)
    assert LOST_A_DAY > 0
