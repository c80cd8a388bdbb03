"""Render one page in a context of a browser: its requests, its screenshot and its visible boxes."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

from convbench.errors import DataError, MissingDependency
from convbench.sandbox import tailwind
from convbench.sandbox.chromium import browser_errors
from convbench.util.extract import find_enclosed
from convbench.util.install import with_extra

LINES = 60
_BODY = re.compile(r"<body\b", re.IGNORECASE), re.compile(r"</body\s*+>", re.IGNORECASE)
_PAGE = re.compile(r"<html\b", re.IGNORECASE), re.compile(r"</html\s*+>", re.IGNORECASE)


def first_html(text: str) -> str | None:
    """Return the first part of a text from `<html` to `</html>`, else the first from `<body` to
    `</body>`.

    Return None without either. A doctype before it is not included.
    """
    return next(chain(_iter_pages(text, *_PAGE), _iter_pages(text, *_BODY)), None)


def html_of(text: str) -> str | None:
    """Return the last part of a text from `<html` to `</html>`; None without one."""
    pages = list(_iter_pages(text, *_PAGE))
    return pages[-1] if pages else None


def _iter_pages(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> Iterator[str]:
    return (text[begin.start() : end.end()] for begin, end in find_enclosed(text, opening, closing))


def visible_text(boxes: tuple[Box, ...]) -> str:
    """Return the first 60 boxes as lines `KIND <TAG> 'WORDS' at x LEFT-RIGHT, y TOP`, in pixels.

    They are ordered by rows of 20 pixels from the top, then from the left. Without boxes it is
    empty.
    """
    lines = []
    for box in sorted(boxes, key=lambda b: (round(b.top / 20), b.left)):
        words = f" {box.words!r}" if box.words else ""
        position = f"x {box.left:.0f}-{box.left + box.width:.0f}, y {box.top:.0f}"
        lines.append(f"{box.kind} <{box.tag}>{words} at {position}")
    return "\n".join(lines[:LINES])


_NAMED = re.compile(r"(.*?/(?:id|seed)/[^/?]+)(?:/.*)?$", re.DOTALL)
"""The part of an address that identifies the photo."""
_RANDOM = re.compile(
    r"https://(?:source\.unsplash\.com/random/(\d+)x(\d+)/\?[\w=]+|picsum\.photos/(\d+)/(\d+))"
)
"""Addresses of random photos, by ColBench's two rules (Zhou et al. 2025, released code)."""
PHOTO = "https://picsum.photos/id/48/"
_SIZE = re.compile(r"(\d{1,4})(?:[x/](\d{1,4}))?(?:\D|$)")
LARGEST = 2000


def size_of(url: str) -> tuple[int, int]:
    """Return (width, height) in pixels, each from 1 to 2000, from the address of a placeholder
    picture.

    It is the first number of the path (at most its last four digits) with a second one directly
    after `x` or `/`, else a square: `/300x200`, `/1600/900`, `/150`. The parts `/id/…` and
    `/seed/…` and the query do not count. Without a number it is (400, 300).
    """
    path = re.sub(r"^\w+://[^/]+", "", url).split("?")[0]
    path = re.sub(r"/(?:id|seed)/[^/]+", "", path)
    match = _SIZE.search(path)
    if not match:
        return 400, 300
    width = int(match[1])
    height = int(match[2] or width)
    return max(1, min(width, LARGEST)), max(1, min(height, LARGEST))


def one_photo(html: str) -> str:
    """Return the HTML with every address of a random photo replaced by one fixed photo of the same
    size.

    So ColBench's tasks and pages are prepared. Other addresses stay.
    """
    return _RANDOM.sub(lambda match: PHOTO + "/".join(n for n in match.groups() if n), html)


def _photo_id(url: str) -> str:
    named = _NAMED.match(url)
    return named[1] if named else url


@lru_cache(maxsize=32)
def placeholder_png(url: str) -> bytes:
    """Return a PNG of the size in the address (see `size_of`), with colours derived from the
    address.

    Addresses of one photo in other sizes have the same colours. Raise MissingDependency without
    Pillow.
    """
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency(
            "pillow", needed_for="rendering pages", install=with_extra("vision")
        ) from None
    digest = hashlib.sha256(_photo_id(url).encode()).digest()
    corners = [tuple(64 + byte // 2 for byte in digest[i : i + 3]) for i in (0, 3, 6, 9)]
    small = Image.new("RGB", (2, 2))
    small.putdata(corners)
    out = io.BytesIO()
    small.resize(size_of(url), Image.Resampling.BILINEAR).save(out, "PNG", compress_level=1)
    return out.getvalue()


WIDTH, HEIGHT = 1280, 720
"""The viewport, in pixels."""
TALLEST = 6000
"""Most pixels of a page's height in a screenshot."""
REQUESTS = 300
"""Most requests of a page; one with more is not rendered."""
PIXELS = 100_000_000
"""Most pixels of all pictures that a page requests; one with more is not rendered."""
PNG_BYTES = 64 << 20
PAGE = "http://page.invalid/"
_STILL = (
    "*,*::before,*::after{animation:none!important;transition:none!important;"
    "caret-color:transparent!important;scroll-behavior:auto!important}"
)
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
    """The page cannot be rendered, even alone in a browser of its own."""


@dataclass(frozen=True, slots=True)
class Box:
    """A visible piece of a page; `left`, `top`, `width` and `height` are pixels from the page's top
    left."""

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
    """A page's screenshot with its visible boxes."""

    png: bytes
    width: int
    height: int
    boxes: tuple[Box, ...] = ()


async def take_screenshot(chromium: Any, html: str) -> Shot:
    """Return the screenshot of an HTML text, 1280 pixels wide and 720 to 6000 high, and its visible
    boxes.

    At most 400 boxes are returned. `chromium` is Playwright's browser. Raise Playwright's errors,
    and PageError for a page that requests too much or whose picture has a wrong size. There is no
    time limit here.
    """
    context = await chromium.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        device_scale_factor=1,
        java_script_enabled=False,
        service_workers="block",
        accept_downloads=False,
        locale="en-US",
        timezone_id="UTC",
        color_scheme="light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(0)  # the caller has a deadline for all of it
    answers = _RequestAnswers(html)
    await context.route("**/*", answers.answer_request)
    taken = asyncio.ensure_future(_take_shot(await context.new_page()))
    both: set[asyncio.Future[Any]] = {taken, answers.broken}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        shot = taken.result() if taken.done() else answers.broken.result()
        await context.close()
        return shot
    finally:
        taken.cancel()


async def _take_shot(page: Any) -> Shot:
    await page.goto(PAGE)
    scroll_height = await page.evaluate("() => document.documentElement.scrollHeight")
    height = int(min(max(scroll_height, HEIGHT), TALLEST))
    boxes = tuple(Box(*item) for item in await page.evaluate(_BOXES))
    png = await page.screenshot(
        full_page=True,
        animations="disabled",
        clip={"x": 0, "y": 0, "width": WIDTH, "height": height},
    )
    _check_picture(png, height)
    return Shot(png, WIDTH, height, boxes)


def _check_picture(png: bytes, height: int) -> None:
    """Raise PageError if a screenshot is too large or not of the requested size, before anything
    decodes it."""
    size = struct.unpack(">II", png[16:24]) if len(png) > 24 else None
    if size != (WIDTH, height) or len(png) > PNG_BYTES:
        raise PageError(f"the screenshot has {len(png)} bytes and the size {size}")


class _RequestAnswers:
    """Answers a page's requests from local data, up to REQUESTS and PIXELS."""

    def __init__(self, html: str) -> None:
        still = f"{html}<style>{_STILL}</style>"  # browsers accept a style after the page's end
        self.html: bytes | None = still.encode("utf-8", "replace")
        self.requests, self.pixels = 0, 0
        self.broken: asyncio.Future[Shot] = asyncio.get_running_loop().create_future()
        """Holds the error once the page has requested too much or an answer failed."""

    async def answer_request(self, route: Any) -> None:
        """Answer one request, unless the page is broken already."""
        try:
            if not self.broken.done():
                await self._fulfil_request(route)
        except browser_errors():  # the page is gone meanwhile
            return
        except Exception as error:  # noqa: BLE001 - raised again where the page is awaited
            if not self.broken.done():
                self.broken.set_exception(error)

    async def _fulfil_request(self, route: Any) -> None:
        url, kind = route.request.url, route.request.resource_type
        self.requests += 1
        if self.requests > REQUESTS:
            raise PageError(f"the page requests more than {REQUESTS} files")
        if kind == "document":
            await self._send_document(route)
        elif kind == "stylesheet":
            body = tailwind.read_sheet() if tailwind.ADDRESS in url else b""
            await route.fulfill(body=body, content_type="text/css; charset=utf-8")
        elif kind == "image":
            await self._send_picture(route, url)
        else:
            await route.abort()

    async def _send_document(self, route: Any) -> None:
        """Answer with the page itself, once. Later navigations get status 204, so that the page
        stays; frames are empty."""
        if route.request.frame.parent_frame is not None:
            await route.fulfill(body="", content_type="text/html")
        elif self.html is None:
            await route.fulfill(status=204)
        else:
            body, self.html = self.html, None
            await route.fulfill(body=body, content_type="text/html; charset=utf-8")

    async def _send_picture(self, route: Any, url: str) -> None:
        width, height = size_of(url)
        self.pixels += width * height
        if self.pixels > PIXELS:
            raise PageError(f"the page requests more than {PIXELS:,} pixels of pictures")
        await route.fulfill(body=placeholder_png(url), content_type="image/png")
