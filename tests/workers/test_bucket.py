"""A rate that processes of one machine keep together."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from convbench.engine.bucket import BURST_S, Buckets
from tests.rollout.cli import environment
from tests.support.commands import fork_server


def _send(folder: str, count: int, times: Any, ready: Any) -> None:
    ready.wait(60)
    buckets = Buckets(100.0, Path(folder))

    async def go() -> None:
        async def one() -> None:
            await buckets.wait("api")
            times.put(time.time())

        await asyncio.gather(*(one() for _ in range(count)))

    asyncio.run(go())


def test_two_processes_keep_one_rate(tmp_path: Path) -> None:
    """At no moment have more calls gone than the rate and one burst allow."""
    context = fork_server(environment())
    times, ready = context.Queue(), context.Barrier(3)
    asked = (str(tmp_path), 20, times, ready)
    crowd = [context.Process(target=_send, args=asked) for _ in range(2)]
    for one in crowd:
        one.start()
    began = time.time()
    ready.wait(60)
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
        asyncio.run(asyncio.wait_for(other.wait("api"), 60))
    mine.pause("api", float("inf"))
    asyncio.run(asyncio.wait_for(other.wait("api"), 60))
