"""One server asked with plain aiohttp: no redirect followed, bodies bounded, keys to it alone."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from convbench.blot import address
from convbench.errors import FatalModelError
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.listening import told
from convbench.net.body import ACCEPTED, ERROR_BYTES, REPLY_BYTES, BadBody, Body, size
from convbench.net.redirects import redirected

if TYPE_CHECKING:
    import aiohttp

CONNECT_S = 20.0
"""Seconds to connect; the whole call is bounded by the caller."""
JSON = {"Content-Type": "application/json"}


class Http:
    """Requests to one server. `ref` names the model in messages; `headers` go with each."""

    def __init__(self, ref: str, base: str, headers: Mapping[str, str]) -> None:
        self.ref, self.base = ref, base
        self._headers = {"User-Agent": "convbench", "Accept-Encoding": ACCEPTED, **headers}
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxy: str | None = None

    async def ask(
        self, method: str, url: str, body: Any = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, bytes, Any]:
        """Return status, body and headers of one request. Raises Unreachable, BrokenReply,
        Redirected, or FatalModelError for a bad URL."""
        session = self._open()
        with _told(self.ref, url), told(method, url, body) as talk:
            async with session.request(
                method, url, data=body, headers=headers, proxy=self._proxy, allow_redirects=False
            ) as reply:
                talk.status = reply.status
                self._stays(reply, url)
                talk.reply = await self._body(reply)
                return reply.status, talk.reply, reply.headers

    async def lines(self, url: str, most: int) -> AsyncIterator[bytes]:
        """Yield the lines of a file of at most `most` bytes, each at most as long as a reply.

        Raises as `ask` does; BadStatus where there is no such file, BadBody beyond a bound.
        """
        session, plain = self._open(), {"Accept-Encoding": "identity"}
        with _told(self.ref, url):
            async with session.get(
                url, headers=plain, proxy=self._proxy, allow_redirects=False
            ) as reply:
                self._stays(reply, url)
                if reply.status != 200:
                    raise BadStatus(reply.status, await self._body(reply), reply.headers)
                if reply.headers.get("Content-Encoding", "identity") != "identity":
                    raise BadBody(f"{self.ref}: results are compressed, which was not asked for")
                async for line in _split(self.ref, reply, most):
                    yield line

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _stays(self, reply: aiohttp.ClientResponse, url: str) -> None:
        if 300 <= reply.status < 400 and reply.headers.get("Location"):
            raise redirected(self.ref, url, reply.headers["Location"])

    async def _body(self, reply: aiohttp.ClientResponse) -> bytes:
        """Return the body; BadBody where it is longer than any reply, an error's is cut."""
        body: Body | None = None
        try:
            limit = REPLY_BYTES if reply.status == 200 else ERROR_BYTES
            body = Body(reply.headers.get("Content-Encoding"), limit)
            async for chunk in reply.content.iter_any():
                body.feed(chunk)
        except BadBody as error:
            reply.close()
            if reply.status == 200:
                raise BadBody(f"{self.ref}: {error}") from None
        return body.whole() if body else b""

    def _open(self) -> aiohttp.ClientSession:
        """Return the session of the loop that runs now."""
        import aiohttp

        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                headers=self._headers,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._loop = loop
            self._proxy = _proxy(self.base)
        return self._session


class BadStatus(Exception):
    """A file that was not given: status, body and headers of the answer."""

    def __init__(self, status: int, body: bytes, headers: Any) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers


async def _split(ref: str, reply: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    """Yield a body's lines within the bounds; an unfinished last one too."""
    seen, kept = 0, bytearray()
    async for chunk in reply.content.iter_any():
        seen += len(chunk)
        if seen > most:
            raise BadBody(f"{ref}: the results are longer than {size(most)}")
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            kept += part
            yield bytes(kept)
            kept.clear()
        kept += rest
        if len(kept) > REPLY_BYTES:
            raise BadBody(f"{ref}: a line of the results is longer than {size(REPLY_BYTES)}")
    if kept:
        yield bytes(kept)


class _told:
    """Say in our words what went wrong with a connection."""

    def __init__(self, ref: str, url: str) -> None:
        self.ref, self.url = ref, url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import aiohttp

        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            raise FatalModelError(f"{self.ref}: certificate of {error.host} is not valid") from None
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            raise Unreachable(
                f"{self.ref}: cannot connect to {address(self.url)} ({_reason(error)}); "
                "is the server running, is --api-base right?"
            ) from None
        if isinstance(error, aiohttp.InvalidURL):
            raise FatalModelError(
                f"{self.ref}: --api-base: found {address(self.url)!r}; expected http(s)://…/v1"
            ) from None
        if isinstance(error, aiohttp.ClientError | ConnectionError):
            raise BrokenReply(f"{self.ref}: connection lost ({_reason(error)})") from None


def _reason(error: BaseException) -> str:
    inner = getattr(error, "os_error", None)
    text = getattr(inner, "strerror", None) or str(inner or error) or type(error).__name__
    return text.split("\n")[0][:120]


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for this URL, as other clients would."""
    host = urlsplit(url).hostname or ""
    if not urllib.request.getproxies() or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(urlsplit(url).scheme)
