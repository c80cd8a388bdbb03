"""Long replies are read in a thread, so that the loop goes on and an interrupt is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

LONG = 64 << 10
"""Characters that are read in the loop: any more are read in a thread."""


async def offload(read: Callable[[], T], texts: Iterable[str]) -> T:
    """Return what `read` returns of these texts, read in a thread where they are LONG.

    A thread helps where no single step is long: a pattern keeps the interpreter to itself until
    it is done, so every pattern that meets a reply takes time in proportion to its length.
    """
    if sum(map(len, texts)) <= LONG:
        return read()
    return await asyncio.to_thread(_without_stop, read)


def _without_stop(read: Callable[[], T]) -> T:
    """Call `read`; a StopIteration, which no future takes, is the error that a coroutine makes of
    it."""
    try:
        return read()
    except StopIteration as error:
        raise RuntimeError("a function raised StopIteration") from error
