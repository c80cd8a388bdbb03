"""Whether somebody listens where a model is served: a connection, of which nothing is asked."""

from __future__ import annotations

import socket
import urllib.request
from urllib.parse import urlsplit

from convbench.blot import address
from convbench.errors import FatalModelError
from convbench.models.open import OPENAI, base_of

WAIT_S = 10.0
"""Longest to wait for a connection."""


def listening(ref: str, api_base: str | None) -> None:
    """Refuse a model whose server's address is known and where nobody listens.

    A provider's own address is not tried, nor one behind a proxy. Raises FatalModelError.
    """
    provider, slash, _ = ref.partition("/")
    base = api_base or (base_of(provider) if slash else None)
    if base is None or base == OPENAI:
        return
    parts = urlsplit(base)
    if parts.hostname is None or _proxied(parts.scheme, parts.hostname):
        return
    port = parts.port or {"https": 443}.get(parts.scheme, 80)
    try:
        socket.create_connection((parts.hostname, port), WAIT_S).close()
    except OSError as error:
        raise FatalModelError(
            f"{ref}: found no server at {address(base)} ({error.strerror or error}); start the "
            f"server, or name where it is: export {provider.upper()}_API_BASE=http://HOST:PORT/v1"
        ) from None


def _proxied(scheme: str, host: str) -> bool:
    return scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
