"""One Chromium, started behind its wall and ended whole."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convbench.errors import MissingDependency, RunError
from convbench.install import with_extra
from convbench.sandbox import cgroup
from convbench.sandbox.chromium import INSTALL, SCRATCH_BYTES, Way, chromium, ways
from convbench.sandbox.watch import Most, Watch, below, kill

START_MS = 30_000
END_S = 10.0
TASKS = 2000
"""Processes and threads of a browser, where a control group counts them; a hundred is common."""
_FLAGS = (
    "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--dns-prefetch-disable", "--disable-gpu",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--hide-scrollbars",
    "--font-render-hinting=none", "--disable-background-networking", "--force-color-profile=srgb",
)  # fmt: skip
_known: list[Way] = []
"""The way that was seen to work here, once there is one."""


@dataclass(frozen=True, slots=True)
class Browser:
    """A browser with a driver of its own."""

    chromium: Any
    driver: Any
    way: Way
    pid: int
    """Of bubblewrap, or of Chromium where it runs bare."""
    watch: Watch
    group: Path | None
    """The control group that it is in."""

    def kill(self) -> None:
        """End all of its processes, at once. bubblewrap itself follows what it started."""
        self.watch.over.set()
        kill([*below(self.pid), *([] if self.way.wall else [self.pid])])
        cgroup.end(self.group)

    async def end(self) -> None:
        """End it and its driver."""
        self.kill()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.driver.stop(), END_S)


async def start(most: Most) -> Browser:
    """Start a browser that may use so much; the first time, in the safest way that works here.

    Raises MissingDependency without Playwright or Chromium, RunError where it does not start.
    """
    broken = failures()
    program, why = chromium(), ""
    for way in _known or ways():
        try:
            found = await _started(program, way, most)
        except broken as error:
            why = str(error).splitlines()[0]
            if "Timeout" in type(error).__name__:  # a slow machine is no reason for less safety
                break
            continue
        _known[:] = [way]
        return found
    raise RunError(f"{program} does not start: {why}; mend it: {INSTALL} bubblewrap")


def failures() -> tuple[type[Exception], ...]:
    """Return what a browser's failures are raised as."""
    try:
        from playwright.async_api import Error
    except ImportError:
        raise MissingDependency(
            "playwright", needed_for="rendering pages", install=with_extra("vision")
        ) from None
    return Error, TimeoutError, OSError


async def _started(program: str, way: Way, most: Most) -> Browser:
    from playwright.async_api import async_playwright

    folder = Path(tempfile.mkdtemp(prefix="convbench-browser-"))
    driver = await async_playwright().start()
    group = cgroup.make(most.memory_bytes + SCRATCH_BYTES, TASKS)
    try:
        launched = await driver.chromium.launch(
            executable_path=_script(folder, program, way, group), args=_FLAGS, timeout=START_MS,
            chromium_sandbox=way.inner,
            env={"HOME": "/nonexistent", "PATH": os.defpath, "LANG": "C.UTF-8"},
        )  # fmt: skip
        parent, own = map(int, (folder / "mark").read_text().split())
        watch = Watch(parent, most, lambda: None)
        found = Browser(launched, driver, way, own, watch, group)
        watch.end = found.kill
        await _try(found)
        return found
    except BaseException:
        cgroup.end(group)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(driver.stop(), END_S)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _script(folder: Path, program: str, way: Way, group: Path | None) -> str:
    script = folder / "chromium"
    script.write_text(way.script(program, folder / "mark", group))
    script.chmod(0o700)
    return str(script)


async def _try(browser: Browser) -> None:
    """Open a tab the first time, since Chromium's own sandbox may fail only then."""
    if not _known:
        context = await browser.chromium.new_context()
        page = await context.new_page()
        await page.goto("about:blank", timeout=START_MS)
        await context.close()
