"""Guard httpx, whichever library made the client: follow no redirect and bound every body.

litellm makes its clients in a dozen places and offers no single place to configure them; all of
them send through the public methods `httpx.Client.send` and `httpx.AsyncClient.send`. Both are
wrapped once. The wrapper acts only inside this module's context manager (a context variable, which
tasks and the threads of litellm's executor inherit), so that other users of httpx see no change.
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
    BoundedBody,
    Redirected,
    redirect_error,
)
from convbench.net.untrusted_json import loads, tidy_usage

if TYPE_CHECKING:
    import httpx

CODING = ("content-encoding", "content-length", "transfer-encoding")
"""Headers that describe the bytes on the wire, which differ from the decompressed body."""


@dataclass
class GuardedResponse:
    """The last response within one guarded block, before a library interprets it."""

    what: str
    """The model's reference, for error messages."""
    limit: int = REPLY_BYTES
    status: int | None = None
    """Status of the last response; None if none arrived."""
    headers: dict[str, str] = field(default_factory=dict)
    """Its headers, names in lower case."""
    body: Any = None
    """Its sanitised JSON; None if the body is not JSON."""
    refused: BadBody | Redirected | None = None
    """The error if the response was refused."""


_SEEN: ContextVar[GuardedResponse | None] = ContextVar("convbench_seen", default=None)


@contextmanager
def guard_httpx(what: str, limit: int = REPLY_BYTES) -> Iterator[GuardedResponse]:
    """Guard every httpx request made inside; yield the record of the last response.

    No redirect is followed, bodies are bounded by `limit` bytes, and JSON is sanitised before the
    library sees it. A refused response raises Redirected or BadBody inside the library that sent
    the request; the record's `refused` holds that error. A longer body of an error status is cut
    short instead.
    """
    _wrap_send()
    record = GuardedResponse(what, limit)
    token = _SEEN.set(record)
    try:
        yield record
    finally:
        _SEEN.reset(token)


def _wrap_send() -> None:
    """Wrap both `send` methods of httpx, once."""
    import httpx

    if getattr(httpx.Client.send, "guarded", False):
        return
    sync_send, async_send = httpx.Client.send, httpx.AsyncClient.send

    def send(self: httpx.Client, request: httpx.Request, **more: Any) -> httpx.Response:
        record = _SEEN.get()
        if record is None:
            return sync_send(self, request, **more)
        request.headers["accept-encoding"] = ACCEPTED
        response = sync_send(self, request, **{**more, "stream": True, "follow_redirects": False})
        try:
            with _collect_body(record, response) as body:
                for chunk in response.iter_raw():
                    body.feed(chunk)
        finally:
            response.close()
        return _buffer_tidied(record, response, body)

    async def asend(self: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        record = _SEEN.get()
        if record is None:
            return await async_send(self, request, **more)
        request.headers["accept-encoding"] = ACCEPTED
        response = await async_send(
            self, request, **{**more, "stream": True, "follow_redirects": False}
        )
        try:
            with _collect_body(record, response) as body:
                async for chunk in response.aiter_raw():
                    body.feed(chunk)
        finally:
            await response.aclose()
        return _buffer_tidied(record, response, body)

    send.guarded = True  # type: ignore[attr-defined]
    httpx.Client.send = send  # type: ignore[method-assign]
    httpx.AsyncClient.send = asend  # type: ignore[method-assign]


@contextmanager
def _collect_body(record: GuardedResponse, response: httpx.Response) -> Iterator[BoundedBody]:
    """Yield the collector of a response's body and record a refusal. An error's body is cut short.

    Raises Redirected or BadBody."""
    record.status = response.status_code
    record.headers = {name.lower(): value for name, value in response.headers.items()}
    if response.has_redirect_location:
        record.refused = redirect_error(record.what, str(response.url), record.headers["location"])
        raise record.refused
    bad = response.status_code >= 300
    try:
        yield BoundedBody(
            record.headers.get("content-encoding"), ERROR_BYTES if bad else record.limit
        )
    except BadBody as error:
        if not bad:
            record.refused = BadBody(f"{record.what}: {error}")
            raise record.refused from None


def _buffer_tidied(
    record: GuardedResponse, response: httpx.Response, body: BoundedBody
) -> httpx.Response:
    """Return the response with its body in memory, decompressed and its JSON sanitised."""
    buffered = buffer_response(response, _tidy_json(record, body.collected_bytes()))
    if record.body is not None:  # written anew, so in no other charset
        buffered.headers["content-type"] = "application/json"
    return buffered


def buffer_response(response: httpx.Response, content: bytes) -> httpx.Response:
    """Return a new response with this uncompressed content in memory.

    Status, other headers, request and elapsed time are those of `response`, which is not changed or
    closed.
    """
    import httpx

    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in CODING]
    buffered = httpx.Response(
        response.status_code,
        headers=headers,
        content=content,
        request=response.request,
        extensions=response.extensions,
    )
    buffered.elapsed = response.elapsed
    return buffered


def _tidy_json(record: GuardedResponse, raw: bytes) -> bytes:
    """Return the body with its JSON sanitised; return a body that is not JSON unchanged."""
    try:
        record.body = loads(raw)
        tidy_usage(record.body)
        return orjson.dumps(record.body)
    except (ValueError, TypeError, RecursionError):  # no JSON, or nested beyond all use
        record.body = None
        return raw
