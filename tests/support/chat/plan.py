"""The provider's plan: latency, limits, refusals and faults, all changeable while it runs."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

FAULTS = (
    "429",
    "429_retry_after",
    "500",
    "502",
    "503",
    "reset",
    "hang",
    "truncated",
    "partial",
    "empty",
    "null",
    "garbage",
)
BILLED = (
    "reasoning",
    "filter",
    "endless",
    "malformed",
    "untold",
    "negative",
    "zero",
    "huge",
    "float",
    "nan",
    "text",
    "list",
    "free",
    "billed_500",
    "billed_drop",
    "billed_truncated",
)
"""Faults that are charged for; see `billing`."""
"""429: without Retry-After; 502: an HTML body; reset: RST; truncated: half a JSON body, whole as
HTTP; partial: the connection ends within the body; garbage: text that answers nothing."""
REFUSALS = ("unsupported_parameter", "unsupported_value")


@dataclass(frozen=True)
class Plan:
    """What the provider does with a call. Everything off by default."""

    latency_s: float = 0.0
    """Seconds from a call to its reply (the median when `latency_sigma` is set)."""
    latency_sigma: float = 0.0
    """Spread of a log-normal latency; 0 makes it fixed. Drawn from the request, so it repeats."""
    faults: Mapping[str, float] = field(default_factory=dict)
    """Fault kind -> probability per call. Drawn from the request and its attempt number."""
    max_faults_per_request: int | None = None
    """After this many random faults a request (same messages and sampling) is answered."""
    schedule: Mapping[str, str] = field(default_factory=dict)
    """Number of the call since the last reset, from "1" -> fault kind."""
    poison: Mapping[str, str] = field(default_factory=dict)
    """Text found in a call's messages -> fault kind, every time."""
    retry_after: float | str = 1
    """The Retry-After header of "429_retry_after" and of the limiter; a string is sent as it is."""
    hang_s: float = 120.0
    """How long a "hang" lasts if the client does not leave (then 504)."""
    max_in_flight: int | None = None
    """More calls than this at once get 429 with Retry-After, immediately."""
    api_keys: tuple[str, ...] | None = None
    """Keys that are accepted; None accepts any and none. Others get 401."""
    models: tuple[str, ...] | None = None
    """Models that exist; None: any. Others get 404."""
    context_tokens: int | None = None
    """Longest prompt plus `max_tokens`, in words; more gets 400 `context_length_exceeded`."""
    refuse: Mapping[str, str] = field(default_factory=dict)
    """Request parameter -> "unsupported_parameter" or "unsupported_value" (any value but 1)."""
    refuse_system: str | None = None
    """What a call with a system message is refused with (400), as a chat template without a
    system role does; None takes it."""
    seed: int = 0
    """Changes every random draw."""
    dense: float | None = None
    """Tokens that a byte of text is charged with; None charges words."""
    thinks: str | None = None
    """How its models think (`thinking.KINDS`), and what of it must be sent back; None: not."""
    message: Mapping[str, Any] = field(default_factory=dict)
    """Fields that are put into every OpenAI reply's message, whatever they are."""
    keep_requests: int = 0
    """How many of the last request bodies `GET /_requests` shows."""

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown fault or refusal."""
        named = {*self.faults, *self.schedule.values(), *self.poison.values()}
        _known("fault", named, FAULTS + BILLED)
        _known("refusal", set(self.refuse.values()), REFUSALS)
        if sum(self.faults.values()) > 1:
            raise ValueError(f"fault probabilities add up to {sum(self.faults.values())} > 1")

    def changed(self, changes: Mapping[str, Any]) -> Self:
        """This plan with some fields replaced. Raises ValueError for an unknown field."""
        _known("field", set(changes), tuple(f.name for f in fields(self)))
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in changes.items()
        }
        return replace(self, **values)

    def fault(self, number: int, key: str, attempt: int, faulted: int, text: str) -> str | None:
        """The fault of a call, if any.

        `number` counts all calls from 1, `key` names the request, `attempt` counts its calls
        from 1, `faulted` those that random faults have hit, `text` is its whole prompt.
        """
        if str(number) in self.schedule:
            return self.schedule[str(number)]
        for needle, kind in self.poison.items():
            if needle in text:
                return kind
        if not self.faults:
            return None
        if self.max_faults_per_request is not None and faulted >= self.max_faults_per_request:
            return None
        draw = _draw(self.seed, key, attempt).random()
        for kind, probability in self.faults.items():
            draw -= probability
            if draw < 0:
                return kind
        return None

    def latency(self, key: str, attempt: int) -> float:
        """Seconds until the reply to a call."""
        if not self.latency_sigma:
            return self.latency_s
        return self.latency_s * _draw(self.seed, key, -attempt).lognormvariate(
            0.0, self.latency_sigma
        )


def _draw(seed: int, key: str, attempt: int) -> random.Random:
    return random.Random(hashlib.sha256(f"{seed}|{key}|{attempt}".encode()).digest())


def _known(what: str, names: set[str], allowed: tuple[str, ...]) -> None:
    unknown = sorted(names - set(allowed))
    if unknown:
        raise ValueError(f"unknown {what} {', '.join(unknown)}; there are {', '.join(allowed)}")
