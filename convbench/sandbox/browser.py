"""Render model-written pages in a headless Chromium without any network.

Up to AT_ONCE pages share a browser. A page counts as broken only if it fails alone in a fresh
browser: once a page fails in the shared one, that browser is ended, and all pages that were in it
are rendered again, each alone. A screenshot from the shared browser is used only after all pages
that were open at the same time have succeeded.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading

from convbench.sandbox.chromium import (
    INSTALL,
    LATE_S,
    Browser,
    BrowserEnded,
    DriverLoop,
    browser_errors,
    chromium,
    finish_tasks,
    living,
    start_browser,
)
from convbench.sandbox.page import Box, PageError, Shot, take_screenshot
from convbench.sandbox.watch import UsageLimits

__all__ = ["INSTALL", "Box", "PageError", "Shot", "chromium", "shoot"]
AT_ONCE = max(1, os.cpu_count() or 1)
MEMORY = 1 << 30
"""Most private memory in bytes of all processes of a browser, its driver included."""
SHARED_S = 10.0
"""Clock seconds for a page in the shared browser; a page takes far less."""
ALONE = UsageLimits(MEMORY, cpu_seconds=20.0, seconds=60.0)
"""Limits of a page alone, its browser's start included. A busy machine must not fail a page: CPU
seconds end a page that computes forever, clock seconds one that waits."""
RENDERING = "rendering a page"


async def shoot(html: str) -> Shot:
    """Return the full-page screenshot (PNG) of an HTML text and its visible boxes.

    A page that fails in the shared browser is tried again alone. Raise MissingDependency without
    Playwright or Chromium, RunError if Chromium does not start, PageError for a page that cannot be
    rendered even alone.
    """
    thread = _BrowserThread.get_thread()
    return await asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(thread.render_page(html), thread.loop)
    )


def close_all() -> None:
    """End all browsers and their thread, within seconds; do nothing if none was started.

    The next page starts a new one. This also runs when the program ends.
    """
    thread, _BrowserThread._only = _BrowserThread._only, None
    if thread is None:
        return
    browsers = [*living]
    for browser in browsers:
        browser.kill()
    for browser in browsers:
        browser.end_without_loop()
    with contextlib.suppress(RuntimeError):  # it is closed
        thread.loop.call_soon_threadsafe(thread.loop.stop)
    thread.thread.join(3 * LATE_S)


def _forget_browsers() -> None:
    """Forget the thread and the browsers in a forked child, which owns neither."""
    _BrowserThread._only, _BrowserThread._lock = None, threading.Lock()
    living.clear()


atexit.register(close_all)
os.register_at_fork(after_in_child=_forget_browsers)


class _BrowserThread:
    """A thread with an event loop for the browsers, which lives as long as the program."""

    _only: _BrowserThread | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = DriverLoop()
        # An ended browser leaves tasks half done; their errors are reported elsewhere.
        self.loop.set_exception_handler(lambda *_: None)
        self.shared: _SharedBrowser | None = None
        self.starting = asyncio.Lock()
        self.at_once = asyncio.Semaphore(AT_ONCE)
        self.alone_lock = asyncio.Lock()
        self.thread = threading.Thread(target=self._run_loop, name="browser", daemon=True)
        self.thread.start()

    def _run_loop(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(finish_tasks())
        self.loop.close()

    @classmethod
    def get_thread(cls) -> _BrowserThread:
        """Return the running thread, or start a new one."""
        with cls._lock:
            if cls._only is None or not cls._only.thread.is_alive():
                cls._only = cls()
            return cls._only

    async def render_page(self, html: str) -> Shot:
        """Return a page's screenshot from the shared browser, else from one of its own.

        Raises as the module's function of this name."""
        async with self.at_once:
            shared = await self._open_shared()
            shot = await shared.render_page(html)
        if shot is not None and await shared.came_out_well():
            return shot
        async with self.alone_lock:
            return await _render_alone(html)

    async def _open_shared(self) -> _SharedBrowser:
        async with self.starting:
            if self.shared is not None and self.shared.is_spoiled:
                await self.shared.browser.end()
                self.shared = None
            if self.shared is None:
                self.shared = _SharedBrowser(await start_browser(UsageLimits(MEMORY)))
            return self.shared


class _SharedBrowser:
    """A browser shared by pages, used until one of them fails."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.inside: set[asyncio.Future[None]] = set()
        """One future for each page that is open now."""
        self.failed = False

    @property
    def is_spoiled(self) -> bool:
        """Whether a page failed or the browser ended, so that its screenshots no longer count."""
        gone = self.browser.gone.done() or not self.browser.chromium.is_connected()
        return self.failed or gone

    async def render_page(self, html: str) -> Shot | None:
        """Return a page's screenshot; None if it or another open page failed."""
        broken: tuple[type[Exception], ...] = (PageError, *browser_errors())
        here: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.inside.add(here)
        try:
            return await self.browser.run_step(
                take_screenshot(self.browser.chromium, html), SHARED_S, RENDERING
            )
        except broken:
            await self._end_spoiled()
            return None
        finally:
            self.inside.discard(here)
            here.set_result(None)

    async def came_out_well(self) -> bool:
        """Wait for the other open pages; return True if none failed."""
        if self.inside:
            await asyncio.wait(set(self.inside))
        return not self.is_spoiled

    async def _end_spoiled(self) -> None:
        if not self.failed:
            self.failed = True
            await self.browser.end()


async def _render_alone(html: str) -> Shot:
    """Return a page's screenshot from a browser of its own, retried once if the browser ends by
    itself. Raises PageError."""
    try:
        return await _in_fresh(html)
    except BrowserEnded:
        pass
    try:
        return await _in_fresh(html)
    except BrowserEnded as error:
        raise _page_error(error) from None


async def _in_fresh(html: str) -> Shot:
    """Return a page's screenshot from a new browser. Raises PageError, or BrowserEnded if the
    browser ends by itself."""
    browser = await start_browser(ALONE)
    try:
        return await browser.run_step(
            take_screenshot(browser.chromium, html), ALONE.seconds, RENDERING
        )
    except browser_errors() as error:
        if isinstance(error, BrowserEnded) and not browser.used_too_much:
            raise
        raise _page_error(browser.used_too_much or error) from None
    finally:
        await browser.end()


def _page_error(why: object) -> PageError:
    line = (str(why) or type(why).__name__).splitlines()[0]
    return PageError(f"the page cannot be rendered: {line}")
