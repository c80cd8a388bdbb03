"""Client of one server over HTTP/1.1: no redirects, bounded bodies, keys sent to this server only.

A request whose connection is lost is not sent again, since the server may have billed it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import urllib.request
from collections.abc import AsyncIterator, Mapping
from functools import cache
from urllib.parse import urlsplit

import aiohttp

from convbench.errors import FatalModelError, ModelError
from convbench.models.failures import BrokenReply, Unreachable
from convbench.net.body import (
    ACCEPTED,
    ERROR_BYTES,
    REPLY_BYTES,
    BadBody,
    BoundedBody,
    redirect_error,
    size_text,
)
from convbench.util.printable import make_printable
from convbench.util.redact import strip_address

CONNECT_S = 20.0
"""Seconds to connect; the whole call is bounded by the caller."""
FIELD_BYTES = 64 << 10
"""Longest header line of a response, in bytes; a response has at most 128 headers."""
JSON = {"Content-Type": "application/json"}


class HttpClient:
    """Requests to one server. `ref` names the model in messages; `headers` go with each."""

    def __init__(self, ref: str, base: str, headers: Mapping[str, str]) -> None:
        self.ref, self.base = ref, base
        self._headers = {"User-Agent": "convbench", "Accept-Encoding": ACCEPTED, **headers}
        self._has_user = "@" in urlsplit(base).netloc
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send_request(
        self,
        method: str,
        url: str,
        body: bytes | aiohttp.FormData | None = None,
        headers: Mapping[str, str] = JSON,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Return (status, body, headers) of the response to one request, whatever its status.

        The body is decompressed, and cut at 16 KiB unless the status is 200; the headers ignore
        case. Raise Unreachable if no connection is made, BrokenReply if it is lost, Redirected,
        BadBody for a reply that is too long, too slow or compressed in another way, FatalModelError
        for a bad URL, proxy, key or certificate.
        """
        try:
            reply = await self._open_response(method, url, body, headers)
            try:
                return reply.status, await self._read_body(reply, url), reply.headers
            finally:
                reply.close()
        except _FAILURES as error:
            raise self._connection_error(url, error) from None

    async def iter_lines(self, url: str, most: int) -> AsyncIterator[bytes]:
        """Yield the lines of a remote file as bytes without line feed, empty ones and the last one
        included.

        Raise BadStatus unless the status is 200, BadBody beyond `most` bytes, for a line longer
        than 8 MiB or a compressed reply, and connection errors as `send_request` does.
        """
        try:
            reply = await self._open_response("GET", url, None, {"Accept-Encoding": "identity"})
            try:
                if reply.status != 200:
                    raise BadStatus(reply.status, await self._read_body(reply, url), reply.headers)
                if reply.headers.get("Content-Encoding", "identity") != "identity":
                    raise BadBody(f"{self.ref}: results are compressed, which was not asked for")
                async for line in _split_lines(self.ref, reply.content, most):
                    yield line
            finally:
                reply.close()
        except _FAILURES as error:
            raise self._connection_error(url, error) from None

    async def aclose(self) -> None:
        """Close the connections. A later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _open_response(
        self,
        method: str,
        url: str,
        body: bytes | aiohttp.FormData | None,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        """Send a request; return the response, whose body is not yet read."""
        session = self._session
        if session is None or self._loop is not asyncio.get_running_loop():
            session = await self._open_session()
        if self._has_user and "Authorization" in self._headers:
            url = _without_user(url)  # a key goes before them
        return await session.request(
            method,
            url,
            data=body,
            # not the session's own headers, which a proxy gets too
            headers={**self._headers, **headers},
            allow_redirects=False,
            middlewares=() if method == "POST" else (_SendOnce(),),
        )

    async def _open_session(self) -> aiohttp.ClientSession:
        """Return a new session in the running loop. Raises FatalModelError for a malformed key."""
        await self.aclose()
        if not all(value.isascii() and value.isprintable() for value in self._headers.values()):
            raise FatalModelError(
                f"{self.ref}: the key contains a line break or an invalid character; expected "
                "one line of ASCII"
            )
        proxy = _proxy_for(self.ref, self.base)
        secure = "https" in (urlsplit(self.base).scheme, urlsplit(proxy or "").scheme)
        self._loop = asyncio.get_running_loop()
        self._session = aiohttp.ClientSession(
            # no limit on connections: the engine bounds the calls in flight
            connector=aiohttp.TCPConnector(limit=0, ssl=_tls_context() if secure else True),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_S),
            proxy=proxy,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=FIELD_BYTES,
            max_field_size=FIELD_BYTES,
        )
        return self._session

    async def _read_body(self, reply: aiohttp.ClientResponse, url: str) -> bytes:
        """Return the body; an error's body is cut short. Raises Redirected, and BadBody for a reply
        that is too long or compressed in another way."""
        if 300 <= reply.status < 400 and "Location" in reply.headers:
            raise redirect_error(self.ref, url, reply.headers["Location"])
        body: BoundedBody | None = None
        try:
            limit = REPLY_BYTES if reply.status == 200 else ERROR_BYTES
            body = BoundedBody(reply.headers.get("Content-Encoding"), limit)
            while data := await reply.content.readany():
                body.feed(data)
        except BadBody as error:
            if reply.status == 200:
                raise BadBody(f"{self.ref}: {error}") from None
        return body.collected_bytes() if body else b""

    def _connection_error(self, url: str, error: Exception) -> ModelError:
        """Return the model error for a connection error."""
        reason = _failure_reason(error)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            host = urlsplit(url).hostname or ""
            return FatalModelError(f"{self.ref}: certificate of {host} is not valid ({reason})")
        if isinstance(error, _NO_ADDRESS):
            return FatalModelError(
                f"{self.ref}: --api-base: found {strip_address(url)!r}; expected http(s)://…/v1"
            )
        if isinstance(error, _NOT_CONNECTED):
            return Unreachable(
                f"{self.ref}: cannot connect to {strip_address(url)} ({reason}); "
                "is the server running, is --api-base right?"
            )
        return BrokenReply(f"{self.ref}: connection lost ({reason})")


_NO_ADDRESS = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError)
_FAILURES = (aiohttp.ClientError, OSError, UnicodeError)
"""Errors that a request may raise; an invalid host name gives a UnicodeError."""
_NOT_CONNECTED = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientHttpProxyError,
    aiohttp.ConnectionTimeoutError,
)


class BadStatus(Exception):
    """A file was not returned; holds status, body and headers of the response."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers


class _SendOnce:
    """Middleware that sends a request once: aiohttp repeats all but POST if a reused connection is
    lost."""

    def __init__(self) -> None:
        self._sent = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if self._sent:
            raise aiohttp.ServerDisconnectedError
        self._sent = True
        return await handler(request)


async def _split_lines(ref: str, content: aiohttp.StreamReader, most: int) -> AsyncIterator[bytes]:
    """Yield a body's lines, including an unfinished last one. Raises BadBody beyond a bound."""
    seen, line = 0, bytearray()
    while data := await content.readany():
        seen += len(data)
        if seen > most:
            raise BadBody(f"{ref}: the results are longer than {size_text(most)}")
        *ended, rest = data.split(b"\n")
        for part in ended:
            line += part
            yield bytes(line)
            line.clear()
        line += rest
        if len(line) > REPLY_BYTES:
            raise BadBody(f"{ref}: a line of the results is longer than {size_text(REPLY_BYTES)}")
    if line:
        yield bytes(line)


def _failure_reason(error: Exception) -> str:
    """Return why a connection failed, in one line."""
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", error)
    text: str | None = None
    if isinstance(error, aiohttp.ClientHttpProxyError):
        text = f"the proxy answers {error.status}"
    elif isinstance(error, aiohttp.ClientResponseError):
        text = error.message  # of the parser: the response is not HTTP
    elif isinstance(cause, ssl.SSLCertVerificationError):
        text = cause.verify_message
    elif isinstance(cause, ssl.SSLError):
        text = cause.reason
    elif isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        text = os.strerror(cause.errno)
    elif isinstance(cause, OSError):  # a host name that is not found
        text = cause.strerror
    text = (text or str(cause) or type(cause).__name__).strip().split("\n")[0]
    return make_printable(text)[:120]


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the TLS context: the certificates that this Python trusts, at least TLS 1.2."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _without_user(url: str) -> str:
    """Return an address without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _proxy_for(ref: str, url: str) -> str | None:
    """Return the proxy that the environment sets for this URL, as other clients read it, else None.

    Raises FatalModelError if it is not an HTTP address."""
    parts = urlsplit(url)
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if urlsplit(proxy).scheme not in ("http", "https"):
        raise FatalModelError(
            f"{ref}: {parts.scheme}_proxy: found {strip_address(proxy)!r}; expected http(s)://HOST:PORT"
        )
    return proxy
