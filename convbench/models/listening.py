"""Who listens to what goes over the wire to a model's server: nobody, unless a run keeps it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


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


class Talk:
    """One request under way: what came back is noted here, if anything does."""

    status: int | None = None
    reply: bytes = b""


@contextmanager
def told(method: str, url: str, request: object) -> Iterator[Talk]:
    """Tell whoever listens of a request, however it ends."""
    listener, talk, since = LISTENER.get(), Talk(), time.monotonic()
    try:
        yield talk
    finally:
        if listener is not None:
            sent = request if isinstance(request, bytes) else b""
            took = time.monotonic() - since
            listener(Heard(method, url, sent, talk.status, talk.reply, took))
