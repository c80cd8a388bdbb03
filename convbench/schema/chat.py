"""The chat API's words: messages with text and image parts, sampling, completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from pydantic import Field

from convbench.schema.noun import Noun
from convbench.schema.reasoning import Effort, Reasoning
from convbench.schema.token_probs import TokenProbs
from convbench.schema.tools import ToolCall


class TextPart(Noun):
    """A piece of text in a message of several parts."""

    type: Literal["text"] = "text"
    text: str
    """The text."""


class ImagePart(Noun):
    """An image in a message; the bytes lie in the run's `media/` folder."""

    type: Literal["image"] = "image"
    file: Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=200)]
    """File name inside `media/`, named by its content."""
    media_type: str = "image/png"
    """MIME type."""


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Content = str | tuple[Part, ...]


class Message(TypedDict):
    """One chat message as a model gets it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content
    name: NotRequired[str]
    reasoning: NotRequired[Reasoning]
    """What the assistant thought before it, where it is sent back."""
    tool_calls: NotRequired[tuple[ToolCall, ...]]
    """What the assistant called."""
    tool_call_id: NotRequired[str]
    """With role `tool`: the call whose result this is; `name` is the tool's."""
    stable: NotRequired[int]
    """Characters at the start of the content with which other calls begin too; no part of what
    is said."""


class Sampling(Noun):
    """How a model draws its reply."""

    temperature: float = Field(default=1.0, ge=0)
    """Softmax temperature; 0 is greedy."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus mass; null leaves the model's own default."""
    max_tokens: int = Field(default=512, ge=1)
    """Most tokens of one reply. A longer reply is cut, kept, and marked `length`."""
    seed: int | None = None
    """Seed of this one call, where the model takes one."""
    reasoning_effort: Effort | None = Field(default=None, exclude_if=lambda value: value is None)
    """How long the model is to think; null leaves the model's own default."""
    reply_schema: dict[str, Any] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """JSON schema that the reply is to follow, for a model that takes one."""
    tools: tuple[dict[str, Any], ...] = Field(default=(), exclude_if=lambda value: not value)
    """Tools that the reply may call, as the chat API takes them."""
    tool_choice: Literal["none"] | None = Field(
        default=None, exclude_if=lambda value: value is None
    )
    """`none`: tools are told, since earlier messages call them, and may not be called."""
    logprobs: Literal[True] | None = Field(default=None, exclude_if=lambda value: value is None)
    """Log-probabilities of the sampled tokens are asked for, and kept beside the run."""


FinishReason = Literal["stop", "length", "scripted", "rule", "filter", "tool_calls", "other"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply. Token counts and cost are None where nobody told them, never 0."""

    content: Content
    finish_reason: FinishReason = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    model: str | None = None
    """The id that the provider says answered, where it does."""
    reasoning: Reasoning | None = None
    """What it thought before it; None where there is nothing to tell."""
    left_out: tuple[str, ...] = ()
    """Parameters that were asked for and not sent, because the model takes none of them."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Tools that it calls."""
    raw: str | None = None
    """The reply word for word, where the calls stood in its text."""
    token_probs: TokenProbs | None = None
    """Log-probabilities of its tokens, where they were asked for and told."""


def without_stable(messages: Sequence[Message]) -> list[Message]:
    """Return messages as a model reads them, without what `stable` says of prompt caches."""
    return [
        cast("Message", {name: value for name, value in m.items() if name != "stable"})
        if "stable" in m
        else m
        for m in messages
    ]


def text_of(content: Content) -> str:
    """Return the text of a message's content; an image stands as `[image]`."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else "[image]" for part in content)
