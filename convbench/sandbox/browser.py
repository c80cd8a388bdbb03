"""Model-written pages in a headless Chromium that reaches nothing.

Every request is answered here: the page itself, the one style sheet that ColBench's pages ask for
(`convbench.sandbox.tailwind`), generated placeholder pictures; all else is empty. Scripts
are off, the viewport and the scale are fixed, animations stand still. What slips past the
interception (a preconnect, a name look-up) meets a proxy that is not there.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from convbench.errors import DataError, MissingDependency
from convbench.sandbox import tailwind
from convbench.sandbox.pictures import placeholder

WIDTH, HEIGHT = 1280, 720
"""The viewport, in pixels."""
TALLEST = 6000
"""A screenshot shows at most this much of a page."""
TIMEOUT_MS = 60_000
"""A page takes far less; a busy machine must not make one fail."""
PAGE = "http://page.invalid/"
INSTALL = "apt-get install chromium"
_STILL = (
    "*,*::before,*::after{animation:none!important;transition:none!important;"
    "caret-color:transparent!important;scroll-behavior:auto!important}"
)
_ALONE = (
    "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--dns-prefetch-disable", "--disable-gpu",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--hide-scrollbars",
    "--font-render-hinting=none", "--disable-background-networking", "--force-color-profile=srgb",
)  # fmt: skip
_BOXES = """() => {
  const out = [], kinds = {IMG: 'image', SVG: 'image', VIDEO: 'image', IFRAME: 'image',
    INPUT: 'control', BUTTON: 'control', SELECT: 'control', TEXTAREA: 'control', A: 'control'};
  for (const element of document.body ? document.body.querySelectorAll('*') : []) {
    if (out.length >= 400) break;
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if (style.visibility === 'hidden' || box.width < 2 || box.height < 2) continue;
    let kind = kinds[element.tagName.toUpperCase()];
    if (!kind && style.backgroundImage.includes('url(')) kind = 'image';
    const words = [...element.childNodes].filter(n => n.nodeType === 3)
      .map(n => n.textContent.trim()).join(' ').trim();
    if (!kind && words) kind = 'text';
    if (!kind) continue;
    out.push([kind, box.left, box.top, box.width, box.height, words.slice(0, 200),
      element.tagName.toLowerCase()]);
  }
  return out;
}"""


class PageError(DataError):
    """A page that cannot be rendered: it took too long, or brought its tab down."""


@dataclass(frozen=True, slots=True)
class Box:
    """A visible piece of a page, in pixels from the top left."""

    kind: str
    """`text`, `image` or `control`."""
    left: float
    top: float
    width: float
    height: float
    words: str = ""
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Shot:
    """A page as it looks."""

    png: bytes
    width: int
    height: int
    boxes: tuple[Box, ...] = ()


async def shoot(html: str) -> Shot:
    """Return the full-page screenshot of an HTML text and its visible boxes.

    Raises MissingDependency without Playwright or Chromium, PageError for a page that cannot be
    rendered.
    """
    return await asyncio.wrap_future(
        asyncio.run_coroutine_threadsafe(_shoot(html), _Thread.get().loop)
    )


def chromium() -> str:
    """Return the system's Chromium, the program itself where a script wraps it."""
    inner = "/usr/lib/chromium/chromium"
    found = inner if os.access(inner, os.X_OK) else None
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = found or shutil.which(name)
    if found is None:
        raise MissingDependency("Chromium", needed_for="rendering pages", install=INSTALL)
    return found


class _Thread:
    """A loop of its own for the one browser, which lives as long as the program."""

    _only: _Thread | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.browser: Any = None
        self.driver: Any = None
        self.starting = asyncio.Lock()
        self.at_once = asyncio.Semaphore(max(1, os.cpu_count() or 1))
        threading.Thread(target=self.loop.run_forever, name="browser", daemon=True).start()
        atexit.register(self.close)

    @classmethod
    def get(cls) -> _Thread:
        """Return the one there is."""
        with cls._lock:
            if cls._only is None:
                cls._only = cls()
            return cls._only

    async def opened(self) -> Any:
        """Return the browser, started with the first page."""
        async with self.starting:
            if self.browser is None or not self.browser.is_connected():
                await self._start()
            return self.browser

    async def _start(self) -> None:
        try:
            from playwright.async_api import async_playwright
        except ImportError:
            raise MissingDependency(
                "playwright", needed_for="rendering pages",
                install="pip install 'convbench[vision]'",
            ) from None  # fmt: skip
        program = chromium()
        if self.driver is None:
            self.driver = await async_playwright().start()
        alone = [*_ALONE, *(["--no-sandbox"] if os.getuid() == 0 else [])]
        self.browser = await self.driver.chromium.launch(
            executable_path=program, args=alone,
            env={"HOME": "/nonexistent", "PATH": os.defpath, "LANG": "C.UTF-8"},
        )  # fmt: skip

    async def _close(self) -> None:
        if self.browser is not None:
            await self.browser.close()
        if self.driver is not None:
            await self.driver.stop()

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)


async def _shoot(html: str) -> Shot:
    thread = _Thread.get()
    browser = await thread.opened()
    async with thread.at_once:
        context = await browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=1,
            java_script_enabled=False, service_workers="block", accept_downloads=False,
            locale="en-US", timezone_id="UTC", color_scheme="light", reduced_motion="reduce",
        )  # fmt: skip
        try:
            return await _in_time(_page(context, html))
        except (_failures(), TimeoutError) as error:
            line = (str(error) or type(error).__name__).splitlines()[0]
            raise PageError(f"the page cannot be rendered: {line}") from None
        finally:
            await context.close()


def _failures() -> type[Exception]:
    from playwright.async_api import Error

    found: type[Exception] = Error
    return found


T = TypeVar("T")


async def _in_time(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wait_for(work, 2 * TIMEOUT_MS / 1000)


async def _page(context: Any, html: str) -> Shot:
    async def answer(route: Any) -> None:
        await _answer(route, html)

    await context.route("**/*", answer)
    page = await context.new_page()
    await page.goto(PAGE, timeout=TIMEOUT_MS)
    found = await page.evaluate("() => document.documentElement.scrollHeight")
    height = int(min(max(found, HEIGHT), TALLEST))
    boxes = tuple(Box(*item) for item in await page.evaluate(_BOXES))
    png = await page.screenshot(
        full_page=True, animations="disabled", timeout=TIMEOUT_MS,
        clip={"x": 0, "y": 0, "width": WIDTH, "height": height},
    )  # fmt: skip
    return Shot(png, WIDTH, height, boxes)


async def _answer(route: Any, html: str) -> None:
    """Answer one request from what is here."""
    url, kind = route.request.url, route.request.resource_type
    if url == PAGE and kind == "document":
        still = f"{html}<style>{_STILL}</style>"  # a browser takes what follows the page into it
        await route.fulfill(body=still, content_type="text/html; charset=utf-8")
    elif kind == "document" and route.request.frame.parent_frame is None:
        await route.fulfill(status=204)  # a page that sends the browser away stays where it is
    elif kind == "stylesheet" and tailwind.ADDRESS in url:
        await route.fulfill(body=tailwind.sheet(), content_type="text/css; charset=utf-8")
    elif kind == "image":
        await route.fulfill(body=placeholder(url), content_type="image/png")
    elif kind in ("stylesheet", "document"):
        mime = "text/css" if kind == "stylesheet" else "text/html"
        await route.fulfill(body="", content_type=mime)
    else:
        await route.abort()
