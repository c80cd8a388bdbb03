"""What a server answers, as libcurl hands it over: status, headers, a bounded body."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import pycurl

from convbench.net.body import ERROR_BYTES, REPLY_BYTES, BadBody, Body

STOP = 0
"""Told libcurl: take no more of this answer."""
AHEAD = 4 << 20
"""Bytes of a file that wait for their reader; the server waits beyond that."""


class Answer:
    """Takes one answer. An error's body is cut, one that cannot be had is a fault."""

    def __init__(self) -> None:
        self.status: int | None = None
        """None while nothing came."""
        self.fault: BadBody | None = None
        """Why the rest of the body was not taken."""
        self._lines: list[bytes] = []
        self._headers: dict[str, str] | None = None
        self._body: Body | None = None

    def head(self, line: bytes) -> int | None:
        """Take a line of the head; another head may follow one of status 100 to 199."""
        if not line.startswith(b"HTTP/"):
            self._lines.append(line)
            return None
        code = line[:40].split(None, 2)[1:2]
        if not code or len(code[0]) != 3 or not code[0].isdigit():
            return STOP
        self.status = int(code[0])
        self._lines.clear()
        self._headers = None
        return None

    def data(self, data: bytes) -> int | None:
        """Take the next bytes of the body."""
        if self.moved is not None:
            return STOP
        try:
            if self._body is None:
                limit = REPLY_BYTES if self.status == 200 else ERROR_BYTES
                self._body = Body(self.headers.get("content-encoding"), limit)
            self._body.feed(data)
        except BadBody as error:
            self.fault = error
            return STOP
        return None

    @property
    def headers(self) -> dict[str, str]:
        """Its headers by name in lower case; of several of a name the first."""
        if self._headers is None:
            self._headers = {}
            for line in b"".join(self._lines).decode("latin-1").split("\n"):
                name, _, value = line.partition(":")
                self._headers.setdefault(name.lower(), value.strip())
        return self._headers

    @property
    def moved(self) -> str | None:
        """Where it points to; None where it is no redirect."""
        if self.status is None or not 300 <= self.status < 400:
            return None
        return self.headers.get("location")

    @property
    def stopped(self) -> bool:
        """Whether the rest of the body was not taken, by our choice."""
        return self.fault is not None or self.moved is not None

    def whole(self) -> bytes:
        """Return the body."""
        return self._body.whole() if self._body else b""


class FileAnswer(Answer):
    """Takes a file, piece by piece; what is no file (another status than 200) is kept as any
    answer is."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._paused = False
        self._more = asyncio.Event()

    def data(self, data: bytes) -> int | None:
        """Take the next bytes, or have the server wait for the reader."""
        if self.status != 200:
            return super().data(data)
        if self._waiting >= AHEAD:
            self._paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        self._pieces.append(data)
        self._waiting += len(data)
        self._more.set()
        return None

    async def pieces(
        self, curl: pycurl.Curl, done: asyncio.Future[pycurl.Curl]
    ) -> AsyncIterator[bytes]:
        """Yield the file's pieces as they come; raises what `done` raises, after them."""
        done.add_done_callback(lambda _: self._more.set())
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._waiting -= len(piece)
                yield piece
            if self._paused and not done.done():
                self._paused = False
                curl.pause(pycurl.PAUSE_CONT)
            elif done.done():
                done.result()
                return
            else:
                self._more.clear()
                await self._more.wait()
