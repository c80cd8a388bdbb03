"""The Hub's HTTP client with a limit on what is read into memory, redirects included.

Redirects are followed, for repositories are renamed and files lie on other hosts; httpx sends no
Authorization to another origin. Files are streamed to disk and not bounded here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from convbench.errors import HubError
from convbench.net.body import ACCEPTED, BadBody, Body
from convbench.net.guard import plain
from convbench.net.redirects import host

if TYPE_CHECKING:
    import httpx

HUB_BYTES = 128 << 20
"""Most bytes, decompressed, of an answer of the Hub's that is not written to a file."""
REDIRECTS = 10
"""Most redirects of one request."""


@lru_cache(maxsize=1)
def bound() -> None:
    """Have huggingface_hub ask through the bounded client from now on."""
    import httpx
    from huggingface_hub import get_session, set_client_factory

    class Bounded(httpx.Client):
        """httpx's client whose `send` is `sent`."""

        def send(self, request: httpx.Request, **more: Any) -> httpx.Response:
            return sent(super().send, request, self.follow_redirects, **more)

    usual = get_session()  # the client's own settings, or those that somebody gave it
    set_client_factory(
        lambda: Bounded(
            event_hooks=usual.event_hooks,
            timeout=usual.timeout,
            follow_redirects=usual.follow_redirects,
        )
    )


def sent(send: Any, request: httpx.Request, usually: bool, **more: Any) -> httpx.Response:
    """Send a request; follow redirects without reading their bodies; bound the answer's."""
    stream = more.pop("stream", False) or request.method == "HEAD"
    follow = more.pop("follow_redirects", usually)
    if not stream:
        request.headers["accept-encoding"] = ACCEPTED
    for _ in range(REDIRECTS + 1):
        response = send(request, stream=True, follow_redirects=False, **more)
        if response.next_request is None or not (follow if isinstance(follow, bool) else usually):
            return _read(request, response, stream)
        response.close()
        request = response.next_request
    raise HubError(f"{host(str(request.url))}: more than {REDIRECTS} redirects")


def _read(request: httpx.Request, response: httpx.Response, stream: bool) -> httpx.Response:
    """Return the response, read into memory unless the caller streams it; HubError where that is
    too long."""
    if stream:
        if request.method == "HEAD":
            response.read()
        return response
    try:
        body = Body(response.headers.get("content-encoding"), HUB_BYTES)
        for chunk in response.iter_raw():
            body.feed(chunk)
    except BadBody as error:
        raise HubError(f"{host(str(response.url))}: {error}") from None
    finally:
        response.close()
    return plain(response, body.whole())
