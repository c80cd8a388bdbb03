"""Reasoning: what a model thought before a reply in a separate channel, and how it is sent back."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from convbench.schema.base import Count, FrozenModel, canonical_json, json_levels
from convbench.util.words import Effort as Effort

Replay = Literal["never", "last", "always", "signed"]
"""Which of a speaker's earlier reasoning is sent with the next call: none; that of its latest turn;
that of every turn; that of every turn as the provider's own blocks, signatures unchanged."""
Reads = Literal["field", "tags"]
"""Where reasoning is read: from a field of the reply, or from tags in its text too."""
Via = Literal["reasoning_content", "reasoning", "blocks", "tags"]
Trained = Literal["loss", "context", "drop"]
"""What training does with a turn's reasoning: learns it, shows it without loss, or leaves it
out."""

MOST_BLOCKS = 256
"""Most blocks of one reply."""
BODY_BYTES = 16 << 10
"""Most bytes of `extra_body` as JSON."""
BODY_DEPTH = 8
"""Most levels of `extra_body`."""
RESERVED_FIELDS = frozenset(
    {
        "model",
        "messages",
        "stream",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "reasoning_effort",
        "tools",
        "tool_choice",
        "response_format",
    }
)
"""Fields of a request that other settings fill."""
_SECRET = re.compile(
    r"(?i)(.*[_-])?(api[_-]?key|password|passwd|secret|credentials?|authorization|headers?"
    r"|(access|auth|bearer|api)[_-]?token)|(api|base)[_-]?(base|url)"
)
"""Keys that hold credentials or set a request's address."""


class ThinkingBlock(FrozenModel):
    """A provider's thinking block; the signature holds for this text alone."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    """What was thought, or its summary; empty if the provider withholds it."""
    signature: str | None = None
    """The provider's seal, sent back unchanged."""


class RedactedBlock(FrozenModel):
    """A thinking block that only its provider can read."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str
    """Encrypted, sent back unchanged."""


Block = Annotated[ThinkingBlock | RedactedBlock, Field(discriminator="type")]


class Reasoning(FrozenModel):
    """What a model thought before a reply, apart from the reply's own text."""

    text: str = ""
    """What was thought, as far as it is shown."""
    tokens: Count | None = None
    """Number of its tokens, as the provider counts; they are part of the reply's."""
    via: Via = "reasoning_content"
    """The field it came in, or `tags` if it was cut out of the reply's text."""
    frame: tuple[str, str] | None = Field(default=None, exclude_if=lambda value: value is None)
    """With `tags`: the exact text before and after it, so that nothing of the reply is lost."""
    blocks: tuple[Block, ...] = Field(
        default=(), max_length=MOST_BLOCKS, exclude_if=lambda value: not value
    )
    """The provider's blocks, with their signatures."""

    @property
    def has_thought(self) -> bool:
        """Return whether anything was thought: there is text other than white space, a provider's
        block (even an empty one), or a number of tokens above 0."""
        return bool(self.text.strip() or self.blocks or self.tokens)

    @property
    def raw(self) -> str:
        """Return the text that was cut out before the reply's, with the text of its tags (`frame`);
        without tags the reasoning's text alone."""
        before, after = self.frame or ("", "")
        return before + self.text + after


def check_extra_body(body: dict[str, Any]) -> dict[str, Any]:
    """Return these further fields of a request, unchanged, if they may be sent.

    Raise ValueError for a field that another setting fills, a key that holds credentials or an
    address, more than BODY_DEPTH levels or BODY_BYTES bytes, or `chat_template_kwargs` that is no
    mapping.
    """
    kwargs = body.get("chat_template_kwargs", {})
    if not isinstance(kwargs, dict):
        raise ValueError(
            f"chat_template_kwargs: found {type(kwargs).__name__}; expected names and values"
        )
    size = len(canonical_json(body).encode())
    if size > BODY_BYTES:
        raise ValueError(f"found {size:,} bytes; expected at most {BODY_BYTES:,}")
    taken = sorted(RESERVED_FIELDS & body.keys())
    if taken:
        raise ValueError(f"found {taken[0]}, which another setting fills; remove it")
    for depth, level in enumerate(json_levels(body), 1):
        if depth > BODY_DEPTH:
            raise ValueError(f"found more than {BODY_DEPTH} levels; expected fewer")
        keys = [str(key) for value in level if isinstance(value, dict) for key in value]
        secret = next((key for key in keys if _SECRET.fullmatch(key)), None)
        if secret is not None:
            raise ValueError(
                f"found {secret[:60]!r}; keys come from the environment and addresses from "
                "--api-base, never from a request's fields"
            )
    return body


ExtraBody = Annotated[dict[str, Any], AfterValidator(check_extra_body)]
"""More fields of every request, e.g. `{chat_template_kwargs: {enable_thinking: true}}`."""
