"""The first of the calls that begin alike goes ahead, so that the others find it cached.

Providers cache a prompt's beginning once a reply to it has begun. Calls of one beginning that are
sent at once all pay in full, and some pay more, for each writes the cache.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from convbench.engine.gate import idle
from convbench.engine.need import usual_prompt
from convbench.models.model import Model
from convbench.schema import Message, text_of


class Priming:
    """What has been begun of every beginning that several calls may share."""

    def __init__(self) -> None:
        self._first: dict[bytes, asyncio.Future[None]] = {}

    def turn(self, model: Model, messages: Sequence[Message]) -> AbstractAsyncContextManager[None]:
        """Wait while the first call of the same beginning is under way, however it ends; the first
        call goes at once, and so does one that shares nothing."""
        key = _beginning(model, messages)
        return nullcontext() if key is None else self._turn(key)

    @asynccontextmanager
    async def _turn(self, key: bytes) -> AsyncIterator[None]:
        waiting = self._first.get(key)
        if waiting is not None:
            with idle():
                await asyncio.shield(waiting)
            yield
            return
        first = self._first[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            first.set_result(None)


def _beginning(model: Model, messages: Sequence[Message]) -> bytes | None:
    """Return what names the beginning that a call shares with others at this model; None where
    there is none, or none worth it."""
    if model.caches is None:
        return None
    marked = next((i for i, message in enumerate(messages) if "stable" in message), None)
    if marked is None:
        return None
    if any(message["role"] == "assistant" for message in messages):
        return None
    last = messages[marked]
    head: Message = {"role": "user", "content": text_of(last["content"])[: last["stable"]]}
    shared = [*messages[:marked], head]
    if usual_prompt(shared) < model.caches:
        return None
    digest = hashlib.sha256(model.endpoint.encode())
    for message in shared:
        digest.update(
            f"\0{message['role']}\0{text_of(message['content'])}".encode(errors="replace")
        )
    return digest.digest()
