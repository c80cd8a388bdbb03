"""Browsers that a test leaves behind, named."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator, Set
from pathlib import Path

import pytest

from convbench.sandbox.watch import is_alive, iter_descendants

PATIENCE_S = 60.0
"""For a process that was told to end; machines are busy."""
_OURS = re.compile(r"guard\.py --talks-to|run-driver|^\S*bwrap .*chrom|^\S*chrom|^sleep 600")
"""Commands of a browser, its wall, its driver and what stands in for them."""


def command_of(pid: int) -> str:
    """Return what a process runs; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _theirs() -> set[int]:
    """Return the drivers that we started ourselves, without a guard, and all below them."""
    if "playwright" not in sys.modules:  # nothing here can have started one
        return set()
    own: set[int] = set()
    for children in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended since
            own.update(map(int, children.read_text().split()))
    drivers = {pid for pid in own if "run-driver" in command_of(pid)}
    drivers = {pid for pid in drivers if "guard.py" not in command_of(pid)}
    return drivers | {pid for driver in drivers for pid in iter_descendants(driver)}


def processes_left(but: int = 0, others: Set[int] = frozenset()) -> list[str]:
    """Return the commands of browsers' processes below us that do not end within PATIENCE_S, those
    below one guard and some `others` left out."""
    until = time.monotonic() + PATIENCE_S
    while found := _commands_left(but, others):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return found


def _commands_left(but: int, others: Set[int]) -> list[str]:
    fine = {but, *iter_descendants(but), *others}
    left = [pid for pid in iter_descendants(os.getpid()) if pid not in fine and is_alive(pid)]
    return [line[:200] for line in map(command_of, left) if _OURS.search(line)]


@pytest.fixture(autouse=True)
def _no_browser_left() -> Iterator[None]:
    """Each test leaves the shared browser at most: what else is left fails the one that left it.

    A test's own Playwright, which no guard of ours started, ends with its fixture.
    """
    before = _theirs()
    yield
    browser = sys.modules.get("convbench.sandbox.browser")
    if browser is not None and browser._BrowserThread._only is not None:
        shared = browser._BrowserThread._only.shared
        watch = shared.browser.watch if shared else None
        left = processes_left(watch.guard if watch else 0, before | _theirs())
        assert not left, f"this test left processes of browsers: {left}"
