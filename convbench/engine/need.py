"""What a call may use: from its bytes and limits, and from what the model's replies taught."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from convbench.models.model import Model
from convbench.schema import ImagePart, Message, Sampling, text_of

MESSAGE_TOKENS = 16
"""Tokens a chat template may put around a message."""
USUAL_FRAME = 4
"""Tokens it usually puts there."""
USUAL_TOKEN = 3
"""Bytes a token of usual text: English has about 4, Chinese 3 to 4."""
IMAGE_TOKENS = 1500
"""Tokens of an image, until replies tell better."""
CAUTION = 64.0
"""Times its bounds that a call is held for while no reply has told how a model bills."""
TRUST = 4.0
"""Times its bounds that it is held for when many have: a model may change its ways."""
HALVED = 32
"""Replies that halve the caution."""
SPREAD = 1.1
"""Times the densest prompt so far that the next one is likely to be at most."""


@dataclass(frozen=True, slots=True)
class Size:
    """A call's bounds: a byte of text is at most a token, a reply at most what was asked for."""

    text: int
    """Bytes of the prompt's text, without reasoning that is sent back, which not all bill."""
    prompt: int
    """Tokens of the prompt, at most."""
    reply: int
    """Tokens of the reply (and of reasoning that is billed and not shown), at most."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens, and dollars where the price is known."""

    tokens: float
    usd: float | None


def size_of(model: Model, messages: Sequence[Message], sampling: Sampling) -> Size:
    """Return the bounds of a call."""
    text, images = _measured(messages)
    thoughts = sum(_thought(message) for message in messages if "reasoning" in message)
    prompt = text + thoughts + MESSAGE_TOKENS * len(messages) + IMAGE_TOKENS * images
    return Size(text, prompt, sampling.max_tokens + model.headroom)


def usual_prompt(messages: Sequence[Message]) -> int:
    """Return an estimate, on the high side of what is usual, of the tokens of a prompt."""
    text, images = _measured(messages)
    return text // USUAL_TOKEN + USUAL_FRAME * len(messages) + IMAGE_TOKENS * images + 1


def _measured(messages: Sequence[Message]) -> tuple[int, int]:
    """Return the bytes of the messages' text, and how many images they hold."""
    text = images = 0
    for message in messages:
        content = message["content"]
        said = text_of(content)
        text += len(said) if said.isascii() else len(said.encode("utf-8", "replace"))
        for call in message.get("tool_calls", ()):
            text += len(call.arguments.encode()) + 64
        if not isinstance(content, str):
            images += sum(isinstance(part, ImagePart) for part in content)
    return text, images


def _thought(message: Message) -> int:
    """Return the bytes of the reasoning that is sent back with a message."""
    reasoning = message.get("reasoning")
    return len(reasoning.model_dump_json()) if reasoning else 0


class Rates:
    """How one model bills against the bounds of its calls, and the calls of it in flight."""

    def __init__(self, price: Callable[[int, int], float | None]) -> None:
        self._price = price
        self.prompt = self.reply = self.usd = 1.0
        """Most that was billed, as a share of the bound; at least 1."""
        self._dense = 0.0
        self._replies = 0
        self._held_prompt = self._held_reply = 0
        self._lock = threading.Lock()

    def dollars(self, prompt: float, reply: float) -> float | None:
        """Return the list price of so many tokens; None where it is unknown."""
        return self._price(round(prompt), round(reply))

    def learn(self, size: Size, prompt: float, reply: float, usd: float | None) -> None:
        """Take note of what a reply was billed."""
        list_price = self.dollars(prompt, reply)
        with self._lock:
            self._replies += 1
            self._dense = max(self._dense, prompt / size.prompt)
            self.prompt = max(self.prompt, prompt / size.prompt)
            self.reply = max(self.reply, reply / size.reply)
            if usd and list_price:
                self.usd = max(self.usd, usd / list_price)

    def likely(self, size: Size) -> Estimate:
        """Return what a call will use by all that is known, with its reply at full length."""
        share = self._dense * SPREAD if self._replies else self.prompt
        return self._estimate(size.prompt * share, size.reply * self.reply)

    def bound(self, size: Size) -> Estimate:
        """Return what a call may be billed at most, if it is billed as others were."""
        return self._estimate(size.prompt * self.prompt, size.reply * self.reply)

    def hold(self, size: Size, sign: int) -> None:
        """Count a call in flight (1), or no longer (-1)."""
        with self._lock:
            self._held_prompt += sign * size.prompt
            self._held_reply += sign * size.reply

    def held(self) -> Estimate:
        """Return what the calls in flight are held for: the more, the less is known."""
        margin = max(TRUST, CAUTION * HALVED / (HALVED + self._replies))
        prompt, reply = self._held_prompt * self.prompt, self._held_reply * self.reply
        return self._estimate(prompt * margin, reply * margin)

    def _estimate(self, prompt: float, reply: float) -> Estimate:
        usd = self.dollars(prompt, reply)
        return Estimate(prompt + reply, None if usd is None else usd * self.usd)
