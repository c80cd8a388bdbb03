"""The lane of one model: who waits for its next wave, and what a batch of it may hold."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from convbench.engine.flight import Flight, Waiting
from convbench.engine.need import USUAL_TOKEN, Estimate, Rates
from convbench.engine.submitted import SentCall
from convbench.models.batch import Batches
from convbench.models.model import Model

LIMIT = re.compile(r"limit[^\d]{0,20}(\d[\d,]{2,14})", re.IGNORECASE)
"""How many tokens may wait, in the words of a provider that has no room for more."""


@dataclass
class Part:
    """A batch while it is put together."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    calls: list[Waiting] = field(default_factory=list)
    lines: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes."""
    tokens: float = 0.0
    usd: float | None = 0.0

    def add(self, waiting: Waiting, line: bytes, need: Estimate) -> None:
        """Take a call with its request and its worst case."""
        self.calls.append(waiting)
        self.lines.append(line)
        self.size += len(line) + 1
        self.tokens += need.tokens
        self.usd = None if self.usd is None or need.usd is None else self.usd + need.usd


@dataclass
class Lane:
    """The waves of one model."""

    model: Model
    batches: Batches
    rates: Rates
    waiting: dict[Waiting, None] = field(default_factory=dict)
    """Those that the next wave takes, in the order they came."""
    most_queued: float | None = None
    """Tokens of prompts that may wait at the provider, once it said that there were too many."""

    def line(self, part: Part, waiting: Waiting) -> bytes:
        """Return the request of the part's next call."""
        name = f"{part.mark}-{len(part.calls)}"
        return self.batches.line(name, waiting.messages, waiting.sampling)

    def beyond(self, part: Part, line: bytes) -> bool:
        """Whether a part has no room for a request."""
        limit = self.batches
        return bool(part.calls) and (
            len(part.calls) >= limit.most_requests or part.size + len(line) + 2 > limit.most_bytes
        )

    def sent(self, part: Part) -> list[SentCall]:
        """Return a part's calls as they are written down."""
        missing = self.batches.missing
        return [SentCall(c.key, c.hash, c.size, missing(c.sampling)) for c in part.calls]

    def crowded(self, flight: Flight, why: str) -> bool:
        """Learn from a batch that was refused because too many tokens wait how many may; return
        whether only waiting helps."""
        size = queued([call.size.text for call in flight.sent.calls])
        found = LIMIT.search(why)
        said = float(found[1].replace(",", "")) if found else 0.0
        self.most_queued = said if 0 < said < size else max(1.0, size / 2)
        return said >= size or len(flight.sent.calls) == 1

    def passed(self) -> None:
        """Take note that a batch was taken: the next may be larger."""
        if self.most_queued is not None:
            self.most_queued *= 2


def queued(texts: Sequence[int]) -> float:
    """Return about how many tokens so many bytes of prompts are."""
    return sum(texts) / USUAL_TOKEN
