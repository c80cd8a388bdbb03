"""Browsers of which one process is killed at a random moment: no page waits for ever."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from convbench.errors import ConvbenchError
from convbench.sandbox import browser, chromium
from convbench.sandbox.watch import is_alive, iter_descendants
from tests.bench.bench import Row

KILLS = 100
WITHIN_S = 5.0
"""From the browser's start until the kill; three pages are done in about four seconds."""
HUNG_S = 240.0
"""Two starts of two tries each, and a page in each of two browsers, are bounded below this."""
PAGE = "<html><body><h1>page %d</h1></body></html>"


def kills(folder: Path) -> Iterator[Row]:
    """Kill one random process of driver, wall and Chromium, KILLS times, while four pages are
    rendered one after the other by a browser that starts anew."""
    drawn = random.Random(0)
    ends = Counter(_trial(drawn) for _ in range(KILLS))
    yield Row(f"pages that hang, of {KILLS} killed browsers", ends["hung"], "", 0.0)
    yield Row(
        "killed browsers after which every page came", ends["well"], "", 0.9 * KILLS, at_least=True
    )


def _trial(drawn: random.Random) -> str:
    """Return how one browser's pages ended: well, hung, or not rendered."""
    browser.close_all()
    chromium._known.clear()
    delay, over = drawn.uniform(0, WITHIN_S), threading.Event()
    killer = threading.Thread(target=_kill, args=(delay, drawn, over))
    killer.start()
    try:
        asyncio.run(asyncio.wait_for(_pages(), HUNG_S))
    except TimeoutError:
        return "hung"
    except ConvbenchError as error:
        print(f"killed after {delay:.1f} s: {error}")
        return "not rendered"
    finally:
        over.set()
        killer.join(HUNG_S)
    return "well"


async def _pages() -> None:
    """Render pages until the moment of the kill is past."""
    until = time.monotonic() + WITHIN_S
    count = 0
    while time.monotonic() < until:
        await browser.shoot(PAGE % count)
        count += 1


def _kill(delay: float, drawn: random.Random, over: threading.Event) -> None:
    """Kill one process at the moment, or the first that there is after it."""
    over.wait(delay)
    while not over.is_set():
        if pids := [pid for pid in iter_descendants(os.getpid()) if is_alive(pid)]:
            os.kill(drawn.choice(pids), signal.SIGKILL)
            return
        time.sleep(0.005)
