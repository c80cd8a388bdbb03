"""A rate that processes of one machine keep together."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from pathlib import Path

from convbench.engine.bucket import BURST_S, Buckets


def _send(folder: str, count: int, times: object) -> None:
    buckets = Buckets(100.0, Path(folder))

    async def go() -> None:
        async def one() -> None:
            await buckets.wait("api")
            times.put(time.time())  # type: ignore[attr-defined]

        await asyncio.gather(*(one() for _ in range(count)))

    asyncio.run(go())


def test_two_processes_keep_one_rate(tmp_path: Path) -> None:
    """At no moment have more calls gone than the rate and one burst allow."""
    context = multiprocessing.get_context("fork")
    times = context.Queue()
    began = time.time()
    crowd = [context.Process(target=_send, args=(str(tmp_path), 20, times)) for _ in range(2)]
    for one in crowd:
        one.start()
    found = sorted(times.get() for _ in range(40))
    for one in crowd:
        one.join()
    for number, at in enumerate(found, 1):
        assert number <= 100.0 * (at - began + BURST_S) + 2


def test_a_pause_holds_for_the_other_process_and_its_file_is_bounded(tmp_path: Path) -> None:
    mine, other = Buckets(None, tmp_path), Buckets(None, tmp_path)
    mine.pause("api", 0.2)
    until = time.time() + 0.19
    asyncio.run(other.wait("elsewhere"))
    asyncio.run(other.wait("api"))
    assert time.time() >= until
    for damage in (b"\xff" * 16, b"short", b"\x00\x00\x00\x00\x00\x00\xf0\x7f" * 2):  # nan, inf
        next(iter(tmp_path.iterdir())).write_bytes(damage)
        for file in tmp_path.iterdir():
            file.write_bytes(damage)
        asyncio.run(asyncio.wait_for(other.wait("api"), 5))
    mine.pause("api", float("inf"))
    asyncio.run(asyncio.wait_for(other.wait("api"), 5))
