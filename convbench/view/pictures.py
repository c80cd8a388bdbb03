"""Which files of a run are pictures: told by their content, never by their name.

A run may be a stranger's. What a browser could run (SVG, HTML, scripts) is none, whatever it is
called; links are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

FILE = re.compile(r"[A-Za-z0-9_-][\w.-]{0,199}", re.ASCII)
"""A file name that is served: without a folder, and not hidden."""
RASTER = (".png", ".jpg", ".jpeg", ".webp", ".gif")
"""How their names end."""
LARGEST = 32 << 20
"""Bytes of one."""
_STARTS = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
)


def raster(path: Path) -> str | None:
    """Return the media type of a picture made of pixels; None for any other file."""
    good = FILE.fullmatch(path.name) and path.suffix in RASTER
    if not good or path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return None
    with path.open("rb") as file:
        start = file.read(16)
    return next((kind for look, kind in _STARTS if look.match(start)), None)


def rasters(folder: Path) -> Iterator[Path]:
    """Yield the pictures that lie in a folder, by name."""
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in sorted(folder.iterdir()) if raster(path))
