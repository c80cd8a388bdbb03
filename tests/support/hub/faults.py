"""Faults that a test asks the local Hub for, and its record of requests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass
class Fault:
    """Fail matching requests, from the `nth` on, `times` times."""

    method: str
    """"GET", "POST", … or "*"."""
    path: str
    """Regular expression searched in the raw path, without query: `/commit/main`."""
    status: int = 503
    nth: int = 1
    """Counts the matching requests since the fault was set, from 1."""
    times: int = 1
    drop: bool = False
    """Reset the connection instead of answering."""
    after: bool = False
    """Do what was asked first: the request takes effect and its reply is lost."""
    retry_after: str | None = None
    """Value of a Retry-After header."""
    seen: int = field(default=0)

    def hits(self, method: str, path: str) -> bool:
        """Whether this request fails; counts it."""
        if self.method not in ("*", method) or not re.search(self.path, path):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


@dataclass(frozen=True)
class Logged:
    """One request as the Hub saw it."""

    method: str
    path: str
    """With query."""
    status: int
    """0 for a dropped connection."""
    user: str | None
    """Whose token came with it."""
    range: str | None = None
