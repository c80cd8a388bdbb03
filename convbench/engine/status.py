"""What a run is doing right now: counters that the engine writes and the display reads."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from convbench.errors import Usage


@dataclass(slots=True)
class Endpoint:
    """One endpoint's state."""

    limit: int
    """Calls allowed at once now."""
    highest: int
    """Calls allowed at once when nothing stands against it."""
    in_flight: int = 0
    """Calls on their way."""
    paused_until: float = 0.0
    """`time.monotonic()` until which nothing is sent (Retry-After)."""


@dataclass(slots=True)
class Status:
    """Counters of one command. `total` is None where it is not known."""

    total: int | None = None
    """Jobs in all."""
    done: int = 0
    """Jobs that ended well, those skipped on resume included."""
    skipped: int = 0
    """Jobs found done on resume; they do not count in the rate."""
    failed: int = 0
    """Jobs that ended in a recorded failure."""
    calls: int = 0
    """Calls answered."""
    replayed: int = 0
    """Calls answered by the journal."""
    cached: int = 0
    """Calls answered by the cache of earlier runs' replies."""
    retries: int = 0
    """Attempts that failed and were, or are being, made again."""
    retrying: int = 0
    """Calls that wait for another try now."""
    prompt_tokens: int = 0
    """Tokens of all prompts."""
    completion_tokens: int = 0
    """Tokens of all replies."""
    cost_usd: float = 0.0
    """Known dollars."""
    cost_unknown: bool = False
    """True once a call's price was not known."""
    note: str = ""
    """What it waits for, e.g. a server that starts."""
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    """State of each endpoint by its name."""
    started: float = field(default_factory=time.monotonic)
    """`time.monotonic()` at the start."""
    ready: float = field(default_factory=time.monotonic)
    """`time.monotonic()` from which calls could be made: the start, or when a model was up."""

    def spend(self, told: Usage, usd: float | None) -> None:
        """Count what an attempt used, by what was told of it and what it was booked with."""
        self.prompt_tokens += told.prompt_tokens or 0
        self.completion_tokens += told.completion_tokens or 0
        self.cost_usd += usd or 0.0
        self.cost_unknown = self.cost_unknown or usd is None
