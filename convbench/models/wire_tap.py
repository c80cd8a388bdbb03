"""A tap on the requests to a model's server; inactive unless a run records them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class WireRecord:
    """One request and its response, without headers, which hold the key."""

    method: str
    url: str
    request: bytes
    status: int | None
    """None if no response arrived."""
    reply: bytes
    seconds: float


LISTENER: ContextVar[Callable[[WireRecord], None] | None] = ContextVar("listener", default=None)


class WireTap:
    """Context manager that passes a request to the listener, however it ends; set `status` and
    `reply` within it. A class is faster than a generator, and every call enters one."""

    __slots__ = ("_listener", "_method", "_request", "_since", "_url", "reply", "status")

    def __init__(self, method: str, url: str, request: object) -> None:
        self._listener = LISTENER.get()
        self._method, self._url, self._request = method, url, request
        self.status: int | None = None
        self.reply = b""

    def __enter__(self) -> Self:
        self._since = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            sent = self._request if isinstance(self._request, bytes) else b""
            took = time.monotonic() - self._since
            self._listener(WireRecord(self._method, self._url, sent, self.status, self.reply, took))
