"""Check a server's address, refuse redirects and read a reply's body up to a stated limit."""

from __future__ import annotations

import re
import time
import zlib
from urllib.parse import urljoin, urlsplit

from convbench.errors import FatalModelError, Usage

_SECRET = re.compile(r"//[^/]*@|[?#].*")
LONGEST = 120
"""Most characters of an invalid address that an error message repeats."""


def check_address(url: str, said_by: str) -> None:
    """Raise FatalModelError unless a URL is a printable http(s) address with a host; else return
    None.

    `said_by` names the option, variable or file that it is from. The message repeats neither user
    name, password nor query.
    """
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # brackets or a port that are none
        good = False
    if not good or not url.isprintable() or " " in url:
        shown = _SECRET.sub(lambda match: "//" if match[0][0] == "/" else "", url)[:LONGEST]
        raise FatalModelError(
            f"{said_by}: found {shown!r}; expected http(s)://HOST[:PORT]/v1, e.g. "
            "http://127.0.0.1:8000/v1"
        )


class Redirected(FatalModelError):
    """The server answered with a redirect."""


def redirect_error(what: str, url: str, location: str) -> Redirected:
    """Return, without raising it, the error for a reply that redirects to `location`.

    Its message begins with `what` and names scheme, host and port of both addresses only.
    """
    return Redirected(
        f"{what}: {printable_origin(url)} redirects to {printable_origin(location, url)}, and no "
        "redirect is "
        "followed with a key and a conversation; give the address that answers with --api-base"
    )


def printable_origin(url: str, base: str = "") -> str:
    """Return `SCHEME://HOST[:PORT]` of an address, resolved against `base`, at most 120 characters.

    Spaces and unprintable characters become `?`. An address that cannot be parsed gives `an invalid
    address`.
    """
    try:
        parts = urlsplit(urljoin(base, url))
        port = f":{parts.port}" if parts.port else ""
        origin = f"{parts.scheme}://{parts.hostname or ''}{port}"
    except ValueError:
        return "an invalid address"
    line = "".join(sign if sign.isprintable() and sign != " " else "?" for sign in origin)
    return line if len(line) <= 120 else line[:117] + "..."


REPLY_BYTES = 8 << 20
"""Most bytes of a model's reply, decompressed: some two million tokens of text."""
ERROR_BYTES = 16 << 10
"""Most bytes read of an error's body."""
BODY_S = 600.0
"""Longest time from the headers to the end of a body, unless the caller sets a shorter one."""
ACCEPTED = "gzip, deflate"
"""The Accept-Encoding sent with every request; a reply in any other encoding is refused."""

_WBITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class BadBody(FatalModelError):
    """The body is too long, too slow, or compressed in a way that was not requested."""

    def __init__(self, message: str) -> None:
        super().__init__(message, stops_run=False, usage=Usage())  # sent, and so billed


class BoundedBody:
    """Collects and decompresses one body of at most `limit` bytes that arrives within `seconds`.

    Raise BadBody for an encoding other than gzip, deflate and none. `feed` raises BadBody at a
    limit; the bytes collected before stay readable.
    """

    def __init__(
        self, encoding: str | None, limit: int = REPLY_BYTES, seconds: float = BODY_S
    ) -> None:
        self._limit, self._seconds = limit, seconds
        self._until = time.monotonic() + seconds
        self._content = bytearray()
        self._named = (encoding or "").strip().lower()
        self._wbits = 0
        if self._named not in ("", "identity"):
            if self._named not in _WBITS:
                raise BadBody(
                    f"the reply is compressed as {self._named[:40]!r}; expected {ACCEPTED}"
                )
            self._wbits = _WBITS[self._named]
        self._inflate = zlib.decompressobj(self._wbits) if self._wbits else None

    def feed(self, data: bytes) -> None:
        """Add the next bytes as they came over the wire, decompressed.

        Raise BadBody if the body is now longer than its limit, took too long, or is not validly
        compressed.
        """
        if time.monotonic() > self._until:
            raise BadBody(f"the reply is not complete {self._seconds:g} s after it began")
        if self._inflate is None:
            self._append_bounded(data)
            return
        while data:
            try:
                self._append_bounded(self._inflate.decompress(data, self._bytes_left()))
            except zlib.error:
                data = self._retry_without_header(data)
                continue
            data = self._inflate.unconsumed_tail or self._next_member()

    def collected_bytes(self) -> bytes:
        """Return the decompressed bytes collected so far, at most the limit; empty before the
        first."""
        return bytes(self._content)

    def _bytes_left(self) -> int:
        return self._limit - len(self._content) + 1

    def _append_bounded(self, data: bytes) -> None:
        self._content += data[: self._bytes_left()]
        if len(self._content) > self._limit:
            del self._content[self._limit :]
            raise BadBody(f"the reply is longer than {size_text(self._limit)}")

    def _retry_without_header(self, data: bytes) -> bytes:
        """Return the data after switching to raw deflate: some servers omit the zlib header.

        Raises BadBody if the body is not such a `deflate`."""
        if self._named != "deflate" or self._content or self._wbits < 0:
            raise BadBody(f"the reply is not valid {self._named}") from None
        self._wbits = -15
        self._inflate = zlib.decompressobj(self._wbits)
        return data

    def _next_member(self) -> bytes:
        """Return the bytes after the end of a gzip member; a body may have several members."""
        assert self._inflate is not None
        rest = self._inflate.unused_data
        if rest:
            self._inflate = zlib.decompressobj(self._wbits)
        return rest


def size_text(number: int) -> str:
    """Return a number of bytes as text: `8 MiB` or `16 KiB` if it is a whole number of them, else
    `100 bytes`."""
    if number % (1 << 20) == 0:
        return f"{number >> 20} MiB"
    return f"{number >> 10} KiB" if number % 1024 == 0 else f"{number} bytes"
