"""One Chromium, started behind its wall and ended whole."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from asyncio import FIRST_COMPLETED
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from convbench.errors import ConvbenchError, MissingDependency, RunError
from convbench.install import with_extra
from convbench.sandbox import cgroup
from convbench.sandbox.boundary import INSTALL as WALL
from convbench.sandbox.chromium import INSTALL, SCRATCH_BYTES, Way, chromium, ways
from convbench.sandbox.driver import start_driver
from convbench.sandbox.watch import POLL_S, LastWords, Most, Watch

START_S = 30.0
"""For a driver, a browser, its first tab, each; a second is common."""
NOTICED_S = 1.0
"""Longest from the end of a browser until the watch has seen it."""
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
living: set[Browser] = set()
"""Those that were started, or are being started, and not ended."""
T = TypeVar("T")


class BrowserEnded(ConnectionError):
    """A browser, or its driver, that ended by itself; says when, and its last words."""


@dataclass(slots=True, eq=False)
class Browser:
    """A browser with a driver of its own, each wait on which ends with it."""

    way: Way
    folder: Path
    """Its own folder on the host, its driver's scratch too."""
    group: Path | None
    """The control group that it is in."""
    words: LastWords
    gone: asyncio.Future[None]
    """Done once it is seen to have ended, or is told to."""
    chromium: Any = None
    pid: int = 0
    """Of bubblewrap, or of Chromium where it runs bare; 0 before it is known."""
    watch: Watch | None = None
    """None before its driver was started."""

    @property
    def used_too_much(self) -> str | None:
        """What it was ended for using; None where it was not."""
        return self.watch.why if self.watch else None

    async def during(self, work: Coroutine[Any, Any, T], seconds: float, doing: str) -> T:
        """Return what comes of a step.

        Raises BrowserEnded where the browser ends meanwhile, TimeoutError after so many seconds,
        else what the step raises.
        """
        step = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {step, self.gone}
            await asyncio.wait(either, timeout=seconds, return_when=FIRST_COMPLETED)
            error = step.exception() if step.done() else None
            if step.done() and (error is None or isinstance(error, ConvbenchError)):
                return step.result()
            if step.done():  # perhaps because the browser ended, which the watch sees soon
                await asyncio.wait({self.gone}, timeout=NOTICED_S)
            if self.gone.done():
                last = f"saying: {line}" if (line := self.words.line) else "without a word"
                raise BrowserEnded(f"Chromium ended while {doing}, {last}")
            if not step.done():
                raise TimeoutError(f"no answer within {seconds:.0f} s while {doing}")
            return step.result()
        finally:
            step.cancel()
            step.add_done_callback(lambda done: done.cancelled() or done.exception())

    def kill(self) -> None:
        """Have its watch end all of its processes, at once."""
        if self.watch:
            self.watch.over.set()

    async def end(self) -> None:
        """End it and its driver, and wait for their end."""
        self.kill()
        while self.watch and self.watch.thread.is_alive():  # which has a bound
            await asyncio.sleep(POLL_S)
        self._clear_files()

    def end_without_loop(self) -> None:
        """End it as `end` does, in whichever thread."""
        self.kill()
        if self.watch:
            self.watch.thread.join()
        self._clear_files()

    def _clear_files(self) -> None:
        living.discard(self)
        cgroup.end(self.group)
        self.words.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _over(self) -> None:
        """Let those know who wait; called in the thread of the watch."""
        cgroup.end(self.group)
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            self.gone.get_loop().call_soon_threadsafe(self._let_go)

    def _let_go(self) -> None:
        if not self.gone.done():
            self.gone.set_result(None)


async def start(most: Most) -> Browser:
    """Start a browser that may use so much; the first time, in the safest way that works here.

    What fails is tried once more in the same way. A way that is not the safest is told on stderr.
    Raises MissingDependency without Playwright or Chromium, RunError where it does not start.
    """
    broken = failures()
    program, reasons = chromium(), list[str]()
    for way in _known or ways():
        try:
            found = await _started_in_two(program, way, most)
        except broken as error:
            reasons.append((str(error) or type(error).__name__).splitlines()[0])
            if isinstance(error, TimeoutError):  # a slow machine is no reason for less safety
                break
            continue
        if not _known:
            _tell(way, reasons)
        _known[:] = [way]
        return found
    raise RunError(f"{program} does not start: {reasons[-1]}; mend it: {INSTALL} bubblewrap")


def _tell(way: Way, reasons: Sequence[str]) -> None:
    """Say on stderr what a way lacks, and why no safer one was taken."""
    if lacks := way.lacks():
        why = reasons[0] if reasons else f"bubblewrap is not installed; run: {WALL}"
        print(f"note: pages are rendered without {lacks}: {why}", file=sys.stderr)


def failures() -> tuple[type[Exception], ...]:
    """Return what a browser's failures are raised as."""
    try:
        from playwright.async_api import Error
    except ImportError:
        raise MissingDependency(
            "playwright", needed_for="rendering pages", install=with_extra("vision")
        ) from None
    return Error, TimeoutError, OSError


async def _started_in_two(program: str, way: Way, most: Most) -> Browser:
    try:
        return await _started(program, way, most)
    except failures():  # it may have been killed, or this machine be busy
        return await _started(program, way, most)


async def _started(program: str, way: Way, most: Most) -> Browser:
    folder = Path(tempfile.mkdtemp(prefix="convbench-browser-"))
    group = cgroup.make(most.memory_bytes + SCRATCH_BYTES, TASKS)
    gone = asyncio.get_running_loop().create_future()
    browser = Browser(way, folder, group, LastWords(folder / "words"), gone)
    living.add(browser)
    following = asyncio.ensure_future(_follow(browser))
    try:
        driver = await _driver(browser, most)
        launching = driver.chromium.launch(
            executable_path=_script(program, browser),
            args=_FLAGS,
            timeout=0,  # the limit is ours
            chromium_sandbox=way.inner,
            env={"HOME": "/nonexistent", "PATH": os.defpath, "LANG": "C.UTF-8"},
        )
        browser.chromium = await browser.during(launching, START_S, "starting")
        await asyncio.wait_for(following, START_S)
        await browser.during(_try(browser.chromium), START_S, "opening its first tab")
        return browser
    except BaseException:
        await browser.end()
        raise
    finally:
        following.cancel()


async def _driver(browser: Browser, most: Most) -> Any:
    """Return the driver that was started for a browser, watched from its first moment on."""

    def watch_guard(guard: int) -> None:
        browser.watch = Watch(guard, most, browser.words, browser._over)

    try:
        return await asyncio.wait_for(start_driver(browser.folder, watch_guard), START_S)
    except TimeoutError:
        raise TimeoutError(f"Playwright's driver gave no answer within {START_S:.0f} s") from None
    except Exception as error:  # noqa: BLE001 - no error of its own where its driver ends
        raise BrowserEnded(f"Playwright's driver ended as it started: {error}") from None


def _script(program: str, browser: Browser) -> str:
    script = browser.folder / "chromium"
    files = browser.folder / "mark", browser.folder / "words"
    script.write_text(browser.way.script(program, *files, browser.group))
    script.chmod(0o700)
    return str(script)


async def _follow(browser: Browser) -> None:
    """Have the browser itself watched too, as soon as its script has written its number."""
    mark = browser.folder / "mark"
    while not (browser.watch and mark.exists() and mark.read_text().endswith("\n")):
        await asyncio.sleep(POLL_S)
    browser.pid = int(mark.read_text())
    browser.watch.first.append(browser.pid)


async def _try(chromium: Any) -> None:
    """Open a tab, since Chromium's own sandbox may fail only then."""
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto("about:blank", timeout=0)
    await context.close()
