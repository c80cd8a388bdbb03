"""One server asked with libcurl: no redirect followed, bodies bounded, keys to it alone.

A call costs two thirds of what it does with aiohttp, and a connection less than half. libcurl is
kept from what it would do by itself: to send a request again where a connection was lost (the first
may be billed), and to look for proxies of its own.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator, Mapping
from functools import cache
from io import BytesIO
from urllib.parse import urlsplit

import pycurl

from convbench.blot import address
from convbench.errors import FatalModelError, ModelError
from convbench.models.answer import Answer, FileAnswer
from convbench.models.failures import BrokenReply, Unreachable
from convbench.models.listening import told
from convbench.net.body import ACCEPTED, REPLY_BYTES, BadBody, size
from convbench.net.redirects import redirected

CONNECT_S = 20
"""Seconds to connect; the whole call is bounded by the caller."""
SENT_AT_ONCE = 16 << 10
"""Bytes of a request's body."""
JSON = {"Content-Type": "application/json"}
Kind = tuple[object, ...]
"""What requests have in common that a handle can make: all but their bodies."""


class Http:
    """Requests to one server. `ref` names the model in messages; `headers` go with each."""

    def __init__(self, ref: str, base: str, headers: Mapping[str, str]) -> None:
        self.ref, self.base = ref, base
        self._headers = {"User-Agent": "convbench", "Accept-Encoding": ACCEPTED, **headers}
        self._multi: pycurl.AsyncCurlMulti | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: dict[Kind, list[pycurl.Curl]] = {}
        self._proxy = ""

    async def ask(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] = JSON
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers (names in lower case) of one request. Raises
        Unreachable, BrokenReply, Redirected, or FatalModelError for a bad URL."""
        answer, kind = Answer(), (method, url, body is None, *headers.items())
        with told(method, url, body) as talk:
            idle = self._open(kind)
            curl = idle.pop() if idle else self._handle(method, url, body is not None, headers)
            try:
                await self._ended(url, curl, self._send(curl, body, answer), answer)
            finally:
                talk.status = answer.status
            if body is None or len(body) <= SENT_AT_ONCE:  # it holds what it sent last
                idle.append(curl)
            talk.reply = self._whole(url, answer)
            return answer.status or 0, talk.reply, answer.headers

    async def lines(self, url: str, most: int) -> AsyncIterator[bytes]:
        """Yield the lines of a file of at most `most` bytes, each at most as long as a reply.

        Raises as `ask` does; BadStatus where there is no such file, BadBody beyond a bound.
        """
        self._open()
        answer, plain = FileAnswer(), {"Accept-Encoding": "identity"}
        curl = self._handle("GET", url, False, plain)
        done = self._send(curl, None, answer)
        try:
            async for line in _split(self.ref, self._pieces(url, curl, done, answer), most):
                yield line
        finally:
            done.cancel()

    async def aclose(self) -> None:
        """Close the connections."""
        multi, self._multi, self._idle = self._multi, None, {}
        if multi is not None:
            await multi.aclose()

    def _handle(
        self, method: str, url: str, sends: bool, headers: Mapping[str, str]
    ) -> pycurl.Curl:
        """Return a handle for requests of one kind, one after another."""
        curl = pycurl.Curl()
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.CUSTOMREQUEST, method)
        curl.setopt(pycurl.HTTPHEADER, self._lines({**self._headers, **headers}))
        if sends:
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.UPLOAD_BUFFERSIZE, SENT_AT_ONCE)  # kept until the answer is there
        curl.setopt(pycurl.PROXY, self._proxy)
        curl.setopt(pycurl.CONNECTTIMEOUT, CONNECT_S)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.NOSIGNAL, 1)
        if url.startswith("https:"):
            for option, value in _trusted():
                curl.setopt(option, value)
        return curl

    def _send(
        self, curl: pycurl.Curl, body: bytes | None, answer: Answer
    ) -> asyncio.Future[pycurl.Curl]:
        """Have a request sent and its answer taken; return what tells its end."""
        if body is not None:
            # A reader that cannot go back: else libcurl sends a request twice, unasked.
            curl.setopt(pycurl.POSTFIELDSIZE_LARGE, len(body))
            curl.setopt(pycurl.READFUNCTION, BytesIO(body).read)
        curl.setopt(pycurl.HEADERFUNCTION, answer.head)
        curl.setopt(pycurl.WRITEFUNCTION, answer.data)
        assert self._multi is not None
        done: asyncio.Future[pycurl.Curl] = self._multi.add_handle(curl)
        return done

    def _lines(self, headers: Mapping[str, str]) -> list[str]:
        """Return headers as lines."""
        found = [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line or "\0" in line for line in found):
            raise FatalModelError(f"{self.ref}: the key holds a line break; expected one line")
        return [*found, "Expect:"]  # no waiting for leave to send a long body

    async def _ended(
        self, url: str, curl: pycurl.Curl, done: asyncio.Future[pycurl.Curl], answer: Answer
    ) -> None:
        """Wait for the end of an answer."""
        try:
            await done
        except pycurl.error as error:
            if not answer.stopped:
                raise self._lost(url, curl, error) from None

    def _whole(self, url: str, answer: Answer) -> bytes:
        """Return an answer's body, or raise what it is instead."""
        if answer.moved is not None:
            raise redirected(self.ref, url, answer.moved)
        if answer.fault is not None and answer.status == 200:
            raise BadBody(f"{self.ref}: {answer.fault}") from None
        return answer.whole()

    async def _pieces(
        self, url: str, curl: pycurl.Curl, done: asyncio.Future[pycurl.Curl], answer: FileAnswer
    ) -> AsyncIterator[bytes]:
        """Yield a file as it comes."""
        try:
            async for piece in answer.pieces(curl, done):
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise BadBody(f"{self.ref}: results are compressed, which was not asked for")
                yield piece
        except pycurl.error as error:
            if not answer.stopped:
                raise self._lost(url, curl, error) from None
        if answer.status != 200:
            raise BadStatus(answer.status or 0, self._whole(url, answer), answer.headers)

    def _open(self, kind: Kind = ()) -> list[pycurl.Curl]:
        """Have connections in the loop that runs now; return the idle handles of a kind."""
        loop = asyncio.get_running_loop()
        if self._multi is None or self._loop is not loop:
            self._multi, self._loop, self._idle = pycurl.AsyncCurlMulti(), loop, {}
            self._proxy = _proxy(self.base) or ""
        return self._idle.setdefault(kind, [])

    def _lost(self, url: str, curl: pycurl.Curl, error: pycurl.error) -> ModelError:
        """Say in our words what went wrong with a connection."""
        code, text = error.args[0], str(error.args[1]).split("\n")[0][:120]
        if code in (pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE):
            host = urlsplit(url).hostname or ""
            return FatalModelError(f"{self.ref}: certificate of {host} is not valid ({text})")
        if code in (pycurl.E_COULDNT_CONNECT, pycurl.E_COULDNT_RESOLVE_HOST,
                    pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_OPERATION_TIMEDOUT,
                    pycurl.E_SSL_CONNECT_ERROR):  # fmt: skip
            number = curl.getinfo(pycurl.OS_ERRNO)
            return Unreachable(
                f"{self.ref}: cannot connect to {address(url)} "
                f"({os.strerror(number) if number else text}); "
                "is the server running, is --api-base right?"
            )
        if code == pycurl.E_URL_MALFORMAT or urlsplit(url).scheme not in ("http", "https"):
            return FatalModelError(
                f"{self.ref}: --api-base: found {address(url)!r}; expected http(s)://…/v1"
            )
        return BrokenReply(f"{self.ref}: connection lost ({text})")


class BadStatus(Exception):
    """A file that was not given: status, body and headers of the answer."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status, self.body, self.headers = status, body, headers


async def _split(ref: str, pieces: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield a body's lines within the bounds; an unfinished last one too."""
    seen, kept = 0, bytearray()
    async for chunk in pieces:
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


@cache
def _trusted() -> tuple[tuple[int, int | str | None], ...]:
    """Return the options of TLS: certificates that this Python trusts, at least TLS 1.2."""
    paths = ssl.get_default_verify_paths()
    return (
        (pycurl.SSLVERSION, pycurl.SSLVERSION_TLSv1_2),
        (pycurl.CAINFO, paths.cafile),
        (pycurl.CAPATH, paths.capath),
        (pycurl.SSL_OPTIONS, pycurl.SSLOPT_NATIVE_CA if sys.platform == "win32" else 0),
    )


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment names for this URL, as other clients would."""
    host = urlsplit(url).hostname or ""
    if not urllib.request.getproxies() or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(urlsplit(url).scheme)
