"""Open the page in the user's browser without showing its key to other users of the machine."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>convbench</title><p><a href="{address}">convbench view</a></p>
"""


def has_screen() -> bool:
    """Return whether a browser of windows can come up; one in the terminal must not."""
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or bool(shown)


@contextmanager
def opened(address: str, wanted: bool) -> Iterator[None]:
    """Open an address, if wanted and possible, while entered.

    It goes through a file that only this user can read: arguments of a program can be seen by
    everybody on the machine.
    """
    if not wanted or not has_screen():
        yield
        return
    with TemporaryDirectory(prefix="convbench-") as folder:  # made with mode 0700
        page = Path(folder) / "view.html"
        page.write_text(PAGE.format(address=escape(address)))
        webbrowser.open(page.as_uri())
        yield
