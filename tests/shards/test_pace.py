"""A rate that one process keeps."""

from __future__ import annotations

import asyncio
import time

import pytest

from convbench.engine.limiter import BURST_S, RatePacer


def test_no_more_calls_go_than_the_rate_and_one_burst_allow() -> None:
    pace, times = RatePacer(100.0), list[float]()
    began = time.monotonic()

    async def go() -> None:
        async def call() -> None:
            await pace.wait_turn("api")
            times.append(time.monotonic())

        await asyncio.gather(*(call() for _ in range(60)))

    asyncio.run(go())
    for number, at in enumerate(sorted(times), 1):
        assert number <= 100.0 * (at - began + BURST_S) + 1


def test_each_endpoint_has_a_rate_of_its_own() -> None:
    pace = RatePacer(0.001)

    async def go() -> None:
        for endpoint in ("one", "two", "three"):
            await pace.wait_turn(endpoint)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pace.wait_turn("one"), 0.05)

    asyncio.run(asyncio.wait_for(go(), 60))
