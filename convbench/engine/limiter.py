"""Limits on the calls of an endpoint: a rate, an adaptive concurrency, retries, and one first call
ahead of others with the same prompt prefix.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass

from convbench.engine.budget import usual_prompt
from convbench.engine.jobs import idle_wait
from convbench.engine.progress import EndpointState
from convbench.errors import TransientModelError
from convbench.models.model import Model
from convbench.schema import Message, text_of


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Settings of retries and timeouts. Times are in seconds."""

    concurrency: int = 64
    """Most calls at once to one endpoint."""
    timeout_s: float = 120.0
    """Longest time of one attempt; a `patient` model has no limit."""
    long_reply: int = 1024
    """Reply length in tokens beyond which the timeout grows in proportion."""
    tries: int = 8
    """Most failed attempts of a call, those by 429 not counted."""
    backoff_s: float = 0.5
    """First wait before another try; doubled each time."""
    longest_s: float = 30.0
    """Longest wait of the backoff."""
    retry_after_s: float = 120.0
    """Longest Retry-After that is obeyed; a longer one is shortened to this."""
    patience_s: float = 1800.0
    """Longest total wait of a call because of 429 before it fails."""
    dead: int = 10
    """Number of calls of an endpoint in a row that fail for good before the run stops."""
    unreadable: int = 10
    """Number of results in a row that cannot be parsed, though they are paid for, before the run
    stops."""

    def seconds_for(self, tokens: int) -> float:
        """Return the timeout in seconds of an attempt whose reply has at most so many tokens.

        It is `timeout_s`, and grows in proportion beyond `long_reply` tokens.
        """
        return self.timeout_s * max(1.0, tokens / self.long_reply)

    def backoff_seconds(self, error: TransientModelError, tries: int) -> float:
        """Return the seconds to wait after `tries` failed attempts (from 1), at least Retry-After.

        It is a random number between half of and the whole of `backoff_s` doubled with each further
        one, at most `longest_s`.
        """
        grown = min(self.backoff_s * 2.0 ** (min(tries, 20) - 1), self.longest_s)
        wait = random.uniform(grown / 2, grown)
        return max(wait, self.retry_after(error) or 0.0)

    def retry_after(self, error: TransientModelError) -> float | None:
        """Return the Retry-After of an error in seconds, from 0 to `retry_after_s`; None if it has
        none."""
        if error.retry_after is None:
            return None
        return min(max(0.0, error.retry_after), self.retry_after_s)


SHRINK = 0.6
"""Factor on the limit after a 429."""
GROW = 1 / 16
"""Share of the highest limit that one window of successes adds."""


class Limiter:
    """Limits the concurrent calls of an endpoint (additive increase, multiplicative decrease).

    Calls that were sent before the last decrease do not cause another one: a burst of 429s from one
    moment of overload counts once.
    """

    def __init__(self, highest: int) -> None:
        self.state = EndpointState(limit=highest, highest=highest)
        self._limit = float(highest)
        self._shrunk_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def hold_slot(self) -> _Slot:
        """Return an async context manager that waits for a slot, holds it and releases it at the
        end.

        It yields the `time.monotonic()` at which it got the slot. Raise Stopped if the run stops
        while it waits.
        """
        return _Slot(self)

    async def take_slot(self) -> None:
        """Wait for a free slot and take it, in the order of arrival; raise Stopped if the run stops
        meanwhile."""
        if self._has_free_slot() and not self._waiting:
            self.state.in_flight += 1
            return
        with idle_wait():
            await self._wait_for_slot()

    def release_slot(self) -> None:
        """Release a slot that was taken and admit the next waiting calls."""
        self.state.in_flight -= 1
        self._wake_waiting()

    def on_success(self) -> None:
        """Increase the limit a little after a successful call, up to the highest, and admit waiting
        calls."""
        if self._limit < self.state.highest:
            step = max(1.0, self.state.highest * GROW) / self._limit
            self._set_limit(self._limit + step)
            self._wake_waiting()

    def on_rate_limit(self, sent: float, retry_after: float | None) -> None:
        """Decrease the limit after a call got a 429, and send nothing for `retry_after` seconds.

        The limit stays if the call was sent (`sent`, a `time.monotonic()`) before the last
        decrease. None or 0 makes no pause.
        """
        if sent >= self._shrunk_at:
            self._shrunk_at = time.monotonic()
            self._set_limit(min(self._limit, self.state.in_flight or 1) * SHRINK)
        if retry_after:
            until = time.monotonic() + retry_after
            self.state.paused_until = max(self.state.paused_until, until)

    def _set_limit(self, value: float) -> None:
        self._limit = min(max(1.0, value), float(self.state.highest))
        self.state.limit = int(self._limit)

    def _has_free_slot(self) -> bool:
        paused = self.state.paused_until > time.monotonic()
        return not paused and self.state.in_flight < self.state.limit

    async def _wait_for_slot(self) -> None:
        """Wait until a released slot, or the end of a pause, admits this call."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._wake_waiting()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.state.in_flight -= 1
                self._wake_waiting()
            raise

    def _wake_waiting(self) -> None:
        while self._waiting and self._has_free_slot():
            waiter = self._waiting.popleft()
            if not waiter.done():
                self.state.in_flight += 1
                waiter.set_result(None)
        pause = self.state.paused_until - time.monotonic()
        if self._waiting and pause > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(pause + 0.001, self._on_pause_end)

    def _on_pause_end(self) -> None:
        self._timer = None
        self._wake_waiting()


class _Slot:
    """Context manager that holds a slot; a class is faster than a generator, and every call enters
    one."""

    __slots__ = ("_limiter",)

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def __aenter__(self) -> float:
        await self._limiter.take_slot()
        return time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        self._limiter.release_slot()


class PrefixGate:
    """Lets the first call of each prompt prefix go ahead of those that share it."""

    def __init__(self) -> None:
        self._first: dict[bytes, asyncio.Future[None]] = {}

    def enter(self, model: Model, messages: Sequence[Message]) -> AbstractAsyncContextManager[None]:
        """Return an async context manager that waits until the first call with the same prefix has
        ended, however it ends; the first call and one without a shared prefix do not wait."""
        key = _prefix_key(model, messages)
        return nullcontext() if key is None else self._enter_prefix(key)

    @asynccontextmanager
    async def _enter_prefix(self, key: bytes) -> AsyncIterator[None]:
        waiting = self._first.get(key)
        if waiting is not None:
            with idle_wait():
                await asyncio.shield(waiting)
            yield
            return
        first = self._first[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            first.set_result(None)


def _prefix_key(model: Model, messages: Sequence[Message]) -> bytes | None:
    """Return the hash of the prompt prefix that a call shares with others at this model; None if
    there is none, or it is too short to be cached."""
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
