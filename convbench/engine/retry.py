"""How hard the engine tries."""

from __future__ import annotations

import random
from dataclasses import dataclass

from convbench.errors import TransientModelError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How hard the engine tries. Times in seconds."""

    concurrency: int = 64
    """Most calls at once to one endpoint."""
    timeout_s: float = 120.0
    """Longest one attempt may take; a `patient` model has none."""
    long_reply: int = 1024
    """Tokens from which on a call has longer, in proportion to what its reply may be."""
    tries: int = 8
    """Most attempts of a call that fail other than by 429."""
    backoff_s: float = 0.5
    """First wait before another try; doubled each time."""
    longest_s: float = 30.0
    """Longest wait of the backoff."""
    retry_after_s: float = 120.0
    """Longest Retry-After that is waited for; a longer one is cut to this."""
    patience_s: float = 1800.0
    """Longest one call is held up by 429 before it fails."""
    dead: int = 10
    """Calls of one endpoint that used up their tries in a row before the run stops."""
    unreadable: int = 10
    """Results in a row that nothing could be read of, though they are paid for, before the run
    stops."""

    def seconds_for(self, tokens: int) -> float:
        """Return the longest that an attempt may take whose reply is of at most so many tokens."""
        return self.timeout_s * max(1.0, tokens / self.long_reply)

    def backoff(self, error: TransientModelError, tries: int) -> float:
        """Return seconds to wait before try number `tries` + 1: exponential with full jitter, at
        least Retry-After."""
        grown = min(self.backoff_s * 2.0 ** (min(tries, 20) - 1), self.longest_s)
        wait = random.uniform(grown / 2, grown)
        return max(wait, self.retry_after(error) or 0.0)

    def retry_after(self, error: TransientModelError) -> float | None:
        """Return the seconds that a provider asks to wait, cut to what is waited for."""
        if error.retry_after is None:
            return None
        return min(max(0.0, error.retry_after), self.retry_after_s)
