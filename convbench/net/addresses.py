"""Addresses of servers, looked at before anything is made of them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from convbench.errors import FatalModelError

_SECRET = re.compile(r"//[^/]*@|[?#].*")
LONGEST = 120
"""Characters of an address that is no good which a message repeats."""


def check_address(url: str, said_by: str) -> None:
    """Refuse what is no HTTP address. `said_by` names the option, variable or file that said it.

    Raises FatalModelError, which repeats neither user nor query.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port that are none
        good = False
    if not good or not url.isprintable() or " " in url:
        shown = _SECRET.sub(lambda found: "//" if found[0][0] == "/" else "", url)[:LONGEST]
        raise FatalModelError(
            f"{said_by}: found {shown!r}; expected http(s)://HOST[:PORT]/v1, e.g. "
            "http://127.0.0.1:8000/v1"
        )
