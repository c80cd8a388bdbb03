"""Slots of an endpoint, and the pauses that it asks for."""

from __future__ import annotations

import asyncio
import time

from convbench.engine.limiter import Limiter


def test_slot_is_given_to_no_more_than_the_limit_at_once() -> None:
    async def main() -> int:
        limiter, running, peak = Limiter("x", 5, {}), 0, 0

        async def call() -> None:
            nonlocal running, peak
            async with limiter.slot():
                running += 1
                peak = max(peak, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(call() for _ in range(60)))
        return peak

    assert asyncio.run(main()) == 5


def test_pause_for_holds_back_everyone() -> None:
    async def main() -> float:
        limiter = Limiter("x", 4, {})
        limiter.pause_for(0.2)
        limiter.pause_for(0.0)
        start = time.monotonic()
        async with limiter.slot():
            return time.monotonic() - start

    assert asyncio.run(main()) >= 0.2


def test_slot_that_is_cancelled_gives_its_place_back() -> None:
    async def main() -> None:
        limiter = Limiter("x", 1, {})
        async with limiter.slot():
            waiting = asyncio.ensure_future(limiter.slot().__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
        await asyncio.sleep(0)
        async with asyncio.timeout(1), limiter.slot():
            pass

    asyncio.run(main())
