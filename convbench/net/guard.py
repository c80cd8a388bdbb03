"""httpx under guard: no redirect followed, bodies bounded, whoever made the client.

litellm makes its clients in a dozen places and gives no one place to set them up; all of them
send through `httpx.Client.send` or `httpx.AsyncClient.send`, public methods. Both are wrapped
once; the wrapper does something only within `guarded()` (a context variable, which tasks and the
threads of litellm's executor inherit), so that nobody else's httpx changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from convbench.net.body import (
    ACCEPTED,
    ERROR_BYTES,
    REPLY_BYTES,
    BadBody,
    Body,
    Redirected,
    redirected,
)
from convbench.net.tidy import loads, tidy_usage

if TYPE_CHECKING:
    import httpx

CODING = ("content-encoding", "content-length", "transfer-encoding")
"""Headers that speak of the bytes on the wire, which are no longer those of the body."""


@dataclass
class Seen:
    """What came back within one `guarded()`, whatever a library made of it."""

    what: str
    """What was asked, for messages: the model's reference."""
    limit: int = REPLY_BYTES
    status: int | None = None
    """Status of the last response; None where none arrived."""
    headers: dict[str, str] = field(default_factory=dict)
    """Its headers, names in lower case."""
    body: Any = None
    """Its JSON, made safe; None where it was none."""
    refused: BadBody | Redirected | None = None
    """Why we did not take it."""


_SEEN: ContextVar[Seen | None] = ContextVar("convbench_seen", default=None)


@contextmanager
def guarded(what: str, limit: int = REPLY_BYTES) -> Iterator[Seen]:
    """Guard every httpx request made inside; yield what is seen of the responses.

    A refused response raises in the library that asked; `Seen.refused` says why.
    """
    _wrap()
    seen = Seen(what, limit)
    token = _SEEN.set(seen)
    try:
        yield seen
    finally:
        _SEEN.reset(token)


def _wrap() -> None:
    """Wrap both `send` methods, once."""
    import httpx

    if getattr(httpx.Client.send, "guarded", False):
        return
    sync_send, async_send = httpx.Client.send, httpx.AsyncClient.send

    def send(self: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        seen = _SEEN.get()
        if seen is None:
            return sync_send(self, request, **more)
        request.headers["accept-encoding"] = ACCEPTED
        response = sync_send(self, request, **{**more, "stream": True, "follow_redirects": False})
        try:
            with _taking(seen, response) as body:
                for chunk in response.iter_raw():
                    body.feed(chunk)
        finally:
            response.close()
        return _whole(seen, response, body)

    async def asend(self: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        seen = _SEEN.get()
        if seen is None:
            return await async_send(self, request, **more)
        request.headers["accept-encoding"] = ACCEPTED
        response = await async_send(
            self, request, **{**more, "stream": True, "follow_redirects": False}
        )
        try:
            with _taking(seen, response) as body:
                async for chunk in response.aiter_raw():
                    body.feed(chunk)
        finally:
            await response.aclose()
        return _whole(seen, response, body)

    send.guarded = True  # type: ignore[attr-defined]
    httpx.Client.send = send  # type: ignore[method-assign]
    httpx.AsyncClient.send = asend  # type: ignore[method-assign]


@contextmanager
def _taking(seen: Seen, response: httpx.Response) -> Iterator[Body]:
    """Yield what takes a response's body; note what is refused. An error's body is cut."""
    seen.status = response.status_code
    seen.headers = {name.lower(): value for name, value in response.headers.items()}
    if response.has_redirect_location:
        seen.refused = redirected(seen.what, str(response.url), seen.headers["location"])
        raise seen.refused
    bad = response.status_code >= 300
    try:
        yield Body(seen.headers.get("content-encoding"), ERROR_BYTES if bad else seen.limit)
    except BadBody as error:
        if not bad:
            seen.refused = BadBody(f"{seen.what}: {error}")
            raise seen.refused from None


def _whole(seen: Seen, response: httpx.Response, body: Body) -> httpx.Response:
    """Return the response with its body in memory, as plain bytes."""
    whole = plain(response, _tidy(seen, body.whole()))
    if seen.body is not None:  # written anew, so in no other charset
        whole.headers["content-type"] = "application/json"
    return whole


def plain(response: httpx.Response, content: bytes) -> httpx.Response:
    """Return a closed response with this content, uncompressed, in memory."""
    import httpx

    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in CODING]
    whole = httpx.Response(
        response.status_code,
        headers=headers,
        content=content,
        request=response.request,
        extensions=response.extensions,
    )
    whole.elapsed = response.elapsed
    return whole


def _tidy(seen: Seen, raw: bytes) -> bytes:
    """Return a body whose JSON can be read and kept: see `tidy`. Anything else stays."""
    try:
        seen.body = loads(raw)
        tidy_usage(seen.body)
        return orjson.dumps(seen.body)
    except (ValueError, TypeError, RecursionError):  # no JSON, or nested beyond all use
        seen.body = None
        return raw
