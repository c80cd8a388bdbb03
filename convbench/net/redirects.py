"""Redirects are not followed: the key and the conversation go to the address given, or nowhere."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

from convbench.errors import FatalModelError


class Redirected(FatalModelError):
    """A server that points elsewhere."""


def redirected(what: str, url: str, location: str) -> Redirected:
    """Return the error of a reply that points to `location`, whose query is not repeated."""
    return Redirected(
        f"{what}: {host(url)} redirects to {host(location, url)}, and no redirect is "
        "followed with a key and a conversation; give the address that answers with --api-base"
    )


def host(url: str, base: str = "") -> str:
    """Return scheme, host and port of an address on one line, at most 120 characters."""
    try:
        parts = urlsplit(urljoin(base, url))
        port = f":{parts.port}" if parts.port else ""
        found = f"{parts.scheme}://{parts.hostname or ''}{port}"
    except ValueError:
        return "an address that is none"
    plain = "".join(sign if sign.isprintable() and sign != " " else "?" for sign in found)
    return plain if len(plain) <= 120 else plain[:117] + "..."
