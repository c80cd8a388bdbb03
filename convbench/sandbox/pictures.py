"""Pictures in the place of those a page would fetch: the same address, the same picture.

An address that names a photo by its number or seed has that one's colours at any size.
"""

from __future__ import annotations

import hashlib
import io
import re
from functools import lru_cache

from convbench.errors import MissingDependency
from convbench.install import with_extra

_NAMED = re.compile(r"(.*?/(?:id|seed)/[^/?]+)(?:/.*)?$", re.DOTALL)
"""The part of an address that says which photo it is."""
_RANDOM = re.compile(
    r"https://(?:source\.unsplash\.com/random/(\d+)x(\d+)/\?[\w=]+|picsum\.photos/(\d+)/(\d+))"
)
"""Addresses of random photos, by ColBench's two rules (Zhou et al. 2025, released code)."""
PHOTO = "https://picsum.photos/id/48/"
_SIZE = re.compile(r"(\d{1,4})(?:[x/](\d{1,4}))?(?:\D|$)")
LARGEST = 2000


def size_of(url: str) -> tuple[int, int]:
    """Return width and height in pixels that an address of a placeholder service names.

    The last one or two numbers count (`/id/48/1600/900`, `/300x200`, `/150`); 400 x 300 without.
    """
    path = re.sub(r"^\w+://[^/]+", "", url).split("?")[0]
    path = re.sub(r"/(?:id|seed)/[^/]+", "", path)
    found = _SIZE.search(path)
    if not found:
        return 400, 300
    width = int(found[1])
    height = int(found[2] or width)
    return max(1, min(width, LARGEST)), max(1, min(height, LARGEST))


def one_photo(html: str) -> str:
    """Return a page in which every address of a random photo names one and the same, in the size
    that it asks for, as ColBench's tasks and pages are prepared."""
    return _RANDOM.sub(lambda found: PHOTO + "/".join(n for n in found.groups() if n), html)


def _photo(url: str) -> str:
    named = _NAMED.match(url)
    return named[1] if named else url


@lru_cache(maxsize=32)
def placeholder(url: str) -> bytes:
    """Return a PNG of the size the address names, its colours drawn from the address."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependency(
            "pillow", needed_for="rendering pages", install=with_extra("vision")
        ) from None
    digest = hashlib.sha256(_photo(url).encode()).digest()
    corners = [tuple(64 + byte // 2 for byte in digest[i : i + 3]) for i in (0, 3, 6, 9)]
    small = Image.new("RGB", (2, 2))
    small.putdata(corners)
    out = io.BytesIO()
    small.resize(size_of(url), Image.Resampling.BILINEAR).save(out, "PNG", compress_level=1)
    return out.getvalue()
