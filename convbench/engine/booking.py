"""What an attempt is booked with: what the provider told, where that can be, else its bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from convbench.engine.need import Rates, Size
from convbench.errors import Usage
from convbench.schema import Completion, text_of

LONGEST_TOKEN = 16
"""Bytes a token on average, at most: a smaller count is none."""
WORDY_TOKEN = 6
"""Bytes a token of the wordiest reply: a longer one has not kept its limit."""
LARGEST = 64
"""Times the bound of a call that a count may be: a larger one is none."""
LONGEST_CONTEXT = 10_000_000
"""Tokens that no model's context exceeds."""
OFF_PRICE = 100.0
"""Times the list price, or parts of it, that a told cost may be."""


@dataclass(frozen=True, slots=True)
class Booked:
    """What an attempt is booked with."""

    tokens: int
    usd: float | None
    """None where the price is unknown."""
    assumed: bool = False
    """True where nothing was told, or what cannot be: it is booked with what it cost at most."""


def book(told: Usage, size: Size, rates: Rates, received: int = 0) -> tuple[Booked, Usage]:
    """Return what an answered attempt is booked with, and what was told without what cannot be.

    `received` is the bytes of the reply's text. A count below what so many bytes need is kept as
    told and not believed. The model's rates learn from the booking.
    """
    prompt = _possible(told.prompt_tokens, size.prompt)
    reply = _possible(told.completion_tokens, max(size.reply, received))
    sure_prompt, sure_reply = _enough(prompt, size.text), _enough(reply, received)
    most_reply = _most(size.reply * rates.reply, received)
    prompts = size.prompt * rates.prompt if sure_prompt is None else sure_prompt
    replies = most_reply if sure_reply is None else sure_reply
    listed = rates.dollars(prompts, replies)
    cost = _cost(told.cost_usd, listed)
    usd = listed if cost is None else cost
    unsure = (
        sure_prompt is None or sure_reply is None or (cost is None and told.cost_usd is not None)
    )
    rates.learn(size, prompts, replies, usd)
    return Booked(math.ceil(prompts + replies), usd, unsure), Usage(prompt, reply, cost)


def said(completion: Completion) -> tuple[Usage, int]:
    """Return what the provider told of a reply, and the bytes of its text and shown
    thoughts."""
    told = Usage(completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
    thoughts = completion.reasoning.text if completion.reasoning else ""
    text = thoughts + text_of(completion.content)
    return told, len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def believed(completion: Completion, told: Usage) -> Completion:
    """Return a reply with what was told of it and can be."""
    same = (completion.prompt_tokens, completion.completion_tokens, completion.cost_usd)
    if same == (told.prompt_tokens, told.completion_tokens, told.cost_usd):
        return completion
    return replace(
        completion,
        prompt_tokens=told.prompt_tokens,
        completion_tokens=told.completion_tokens,
        cost_usd=told.cost_usd,
    )


def bound(size: Size, rates: Rates) -> Booked:
    """Return what an attempt is booked with of which nothing is known but that it was sent."""
    most = rates.bound(size)
    return Booked(math.ceil(most.tokens), most.usd, assumed=True)


def _possible(told: int | None, most: int) -> int | None:
    """Return a told count of tokens; None where no call of such a bound has so many, or where it
    is no count."""
    if not isinstance(told, int) or isinstance(told, bool):
        return None
    return told if 0 <= told <= min(LARGEST * most, LONGEST_CONTEXT) else None


def _enough(told: int | None, text: int) -> int | None:
    """Return a count; None where it is too small for so many bytes of text."""
    return told if told is not None and told >= text // LONGEST_TOKEN else None


def _most(limit: float, received: int) -> float:
    """Return the tokens of a reply at most: its limit, unless its text shows that none was kept."""
    return limit if received <= WORDY_TOKEN * limit else received


def _cost(told: float | None, listed: float | None) -> float | None:
    """Return the told cost; None where it cannot be, beside the list price of the tokens."""
    if told is None or not math.isfinite(told) or told < 0:
        return None
    if not listed:
        return told
    return told if listed / OFF_PRICE <= told <= listed * OFF_PRICE else None
