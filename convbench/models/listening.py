"""Who listens to what goes over the wire to a model's server: nobody, unless a run keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Heard:
    """One request and what came back; never its headers, which hold the key."""

    method: str
    url: str
    request: bytes
    status: int | None
    """None where no answer came."""
    reply: bytes
    seconds: float


LISTENER: ContextVar[Callable[[Heard], None] | None] = ContextVar("listener", default=None)


class told:
    """Tell whoever listens of a request, however it ends; what came back is noted here, if
    anything does. A class and no generator, since every call talks."""

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
            self._listener(Heard(self._method, self._url, sent, self.status, self.reply, took))
