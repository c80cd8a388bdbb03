"""Concurrency shrinks at 429, recovers by success, and a pause is kept."""

from __future__ import annotations

import asyncio
import time

from convbench.engine.limiter import Limiter


def test_a_burst_of_429_shrinks_once_and_successes_win_it_back() -> None:
    async def main() -> None:
        limiter = Limiter(64)
        sent = []
        slots = [limiter.hold_slot() for _ in range(64)]
        for slot in slots:
            sent.append(await slot.__aenter__())
        for moment in sent:
            limiter.on_rate_limit(moment, None)
        assert limiter.state.limit == 38
        limiter.on_rate_limit(time.monotonic(), None)
        assert limiter.state.limit == 23
        for slot in slots:
            await slot.__aexit__(None, None, None)
        for _ in range(600):
            limiter.on_success()
        assert limiter.state.limit == 64

    asyncio.run(main())


def test_never_more_than_the_limit_at_once() -> None:
    async def main() -> int:
        limiter, running, peak = Limiter(5), 0, 0

        async def call() -> None:
            nonlocal running, peak
            async with limiter.hold_slot():
                running += 1
                peak = max(peak, running)
                await asyncio.sleep(0.001)
                running -= 1

        await asyncio.gather(*(call() for _ in range(60)))
        assert limiter.state.in_flight == 0
        return peak

    assert asyncio.run(main()) == 5


def test_a_pause_holds_back_everyone() -> None:
    async def main() -> float:
        limiter = Limiter(4)
        limiter.on_rate_limit(time.monotonic(), 0.2)
        start = time.monotonic()
        async with limiter.hold_slot():
            return time.monotonic() - start

    assert asyncio.run(main()) >= 0.2


def test_a_cancelled_wait_gives_its_place_back() -> None:
    async def main() -> None:
        limiter = Limiter(1)
        first = limiter.hold_slot()
        await first.__aenter__()
        waiting = asyncio.ensure_future(limiter.hold_slot().__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        await first.__aexit__(None, None, None)
        await asyncio.sleep(0)
        async with asyncio.timeout(1), limiter.hold_slot():
            assert limiter.state.in_flight == 1

    asyncio.run(main())
