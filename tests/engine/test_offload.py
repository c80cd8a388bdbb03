"""Long replies are read beside the loop: it goes on, and an interrupt is heard."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from convbench.engine.caller import LONG, offload_read


def _reads(text: str) -> int:
    """Return the thread in which a text is read."""
    return asyncio.run(offload_read(threading.get_ident, ["so ", text]))


def test_only_a_long_text_is_read_in_a_thread() -> None:
    assert _reads("B." * 100) == threading.get_ident()
    assert _reads(" " * LONG) != threading.get_ident()


def test_the_loop_goes_on_and_a_cancelled_job_ends() -> None:
    done = threading.Event()

    async def main() -> None:
        job = asyncio.ensure_future(offload_read(lambda: done.wait(60), [" " * (LONG + 1)]))
        await asyncio.sleep(0.05)
        job.cancel()
        start = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert time.monotonic() - start < 10
        done.set()

    asyncio.run(main())


def test_an_error_of_the_reader_arrives() -> None:
    nothing: Iterator[int] = iter(())
    for text in ("", " " * (LONG + 1)):
        with pytest.raises(RuntimeError, match="StopIteration"):
            asyncio.run(asyncio.wait_for(offload_read(lambda: next(nothing), [text]), 60))
