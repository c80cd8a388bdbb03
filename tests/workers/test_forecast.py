"""The foreseen hours are those of a simulation whose workers fail, shard by shard."""

from __future__ import annotations

import heapq
import math
import random

import pytest

from convbench.workers.forecast import LOST_A_DAY, forecast, makespan, usual


def simulate(
    count: int, workers: int, shard_s: float, losses_s: float, restart_s: float, lease_s: float,
    seed: int,
) -> float:  # fmt: skip
    """Play the events: workers take shards, are lost, come again; a lost one's shard waits for its
    lease and keeps what was done of it."""
    draw = random.Random(seed)
    ready = [0.0] * workers  # when a worker is free
    heapq.heapify(ready)
    free: list[tuple[float, float]] = [(0.0, shard_s)] * count  # from when, seconds left
    heapq.heapify(free)
    ends = 0.0
    while free:
        now = heapq.heappop(ready)
        since, left = heapq.heappop(free)
        begins = max(now, since)
        lasts = draw.expovariate(losses_s) if losses_s else math.inf
        if lasts >= left:
            ends = max(ends, begins + left)
            heapq.heappush(ready, begins + left)
        else:
            heapq.heappush(free, (begins + lasts + lease_s, left - lasts))
            heapq.heappush(ready, begins + lasts + restart_s)
    return ends


@pytest.mark.parametrize(
    ("count", "workers", "shard_s", "losses_s", "lease_s"),
    [
        (64, 8, 600.0, 0.0, 120.0),
        (64, 8, 600.0, 1 / 86_400, 120.0),
        (64, 8, 600.0, 1 / 3600, 120.0),
        (1000, 50, 300.0, 1 / 7200, 120.0),
        (4000, 200, 900.0, 1 / 14_400, 300.0),
        (30, 7, 1200.0, 1 / 10_000, 60.0),
    ],
)
def test_the_formula_is_near_the_mean_of_the_simulation(
    count: int, workers: int, shard_s: float, losses_s: float, lease_s: float
) -> None:
    found = makespan(count, workers, shard_s, losses_s, 60.0, lease_s)
    played = [simulate(count, workers, shard_s, losses_s, 60.0, lease_s, n) for n in range(12)]
    mean = sum(played) / len(played)
    assert found == pytest.approx(mean, rel=0.12), (found, mean)


def test_a_billion_conversations_are_arithmetic() -> None:
    found = forecast(
        conversations=10**9, calls=3 * 10**9, prompt_tokens=10**12, reply_tokens=3 * 10**11,
        usd=150_000.0, count=100_000, workers=1000, lease_s=120.0, rates=usual(64),
    )  # fmt: skip
    assert found.hours == pytest.approx(3 * 10**9 / (1000 * 32) / 3600, rel=0.01)
    assert found.hours < found.hours_with_losses < 1.1 * found.hours
    assert found.calls_min == pytest.approx(60 * 32_000)
    assert found.tokens_min == pytest.approx(found.calls_min * 1.3e12 / 3e9)
    capped = forecast(
        conversations=10**9, calls=3 * 10**9, prompt_tokens=10**12, reply_tokens=3 * 10**11,
        usd=None, count=100_000, workers=1000, lease_s=120.0, rates=usual(64), most_s=1000.0,
    )  # fmt: skip
    assert capped.calls_min == pytest.approx(60_000)
    assert capped.hours == pytest.approx(32 * found.hours, rel=0.01)
    assert LOST_A_DAY > 0
