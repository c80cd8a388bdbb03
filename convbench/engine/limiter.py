"""Limits on the calls of an endpoint: how many at once, pauses that it asks for, retries."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from convbench.engine.jobs import pause
from convbench.errors import TransientModelError


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
    empty_tries: int = 3
    """The same for replies without text, which are paid for."""
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
        return max(random.uniform(grown / 2, grown), self.retry_after(error))

    def retry_after(self, error: TransientModelError) -> float:
        """Return the Retry-After of an error in seconds, from 0 to `retry_after_s`; 0 without."""
        return min(max(0.0, error.retry_after or 0.0), self.retry_after_s)


class Limiter:
    """The slots of an endpoint, in the order of arrival, and the pause that it asked for."""

    def __init__(self, name: str, most: int, pauses: dict[str, float]) -> None:
        """`pauses` has the end of each endpoint's pause, as `time.monotonic()` says it."""
        self._name, self._pauses = name, pauses
        self._slots = asyncio.Semaphore(most)

    @property
    def paused_until(self) -> float:
        """Return the `time.monotonic()` until which nothing is sent (Retry-After)."""
        return self._pauses.get(self._name, 0.0)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait for a slot and the end of a pause, and hold the slot; raise Stopped if the run stops
        during the pause."""
        async with self._slots:
            while (wait := self.paused_until - time.monotonic()) > 0:
                await pause(wait)
            yield

    def pause_for(self, seconds: float) -> None:
        """Send nothing for so many seconds; an earlier pause that lasts longer stays."""
        self._pauses[self._name] = max(self.paused_until, time.monotonic() + seconds)
