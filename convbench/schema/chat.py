"""Chat messages with text and image parts, sampling settings, completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from pydantic import Field

from convbench.schema.base import FrozenModel
from convbench.schema.reasoning import Effort, Reasoning
from convbench.schema.tools import ToolCall


class TextPart(FrozenModel):
    """A piece of text in a message of several parts."""

    type: Literal["text"] = "text"
    text: str
    """The text."""


class ImagePart(FrozenModel):
    """An image in a message; the bytes lie in the run's `media/` folder."""

    type: Literal["image"] = "image"
    file: Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=200)]
    """File name inside `media/`, named by its content."""
    media_type: str = "image/png"
    """MIME type."""


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]
Content = str | tuple[Part, ...]


class Message(TypedDict):
    """One chat message as a model receives it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content
    name: NotRequired[str]
    reasoning: NotRequired[Reasoning]
    """What the assistant thought before it, if it is sent back."""
    tool_calls: NotRequired[tuple[ToolCall, ...]]
    """The assistant's tool calls."""
    tool_call_id: NotRequired[str]
    """With role `tool`: the call that this is the result of; `name` is the tool's."""
    stable: NotRequired[int]
    """Characters at the start of the content that other calls begin with too; not part of the
    message itself."""


class Sampling(FrozenModel):
    """Settings by which a model samples a reply."""

    temperature: float = Field(default=1.0, ge=0)
    """Softmax temperature; 0 is greedy."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus mass; null leaves the model's own default."""
    max_tokens: int = Field(default=512, ge=1)
    """Most tokens of one reply. A longer reply is cut, recorded, and marked `length`."""
    seed: int | None = None
    """Seed of this one call, for a model that takes one."""
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
    """`none`: tools are listed, since earlier messages call them, and may not be called."""


FinishReason = Literal["stop", "length", "scripted", "rule", "filter", "tool_calls", "other"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's reply. Unknown token counts and costs are None, never 0."""

    content: Content
    finish_reason: FinishReason = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    model: str | None = None
    """The model id that the provider reports, if it does."""
    reasoning: Reasoning | None = None
    """What the model thought before the reply; None if there is nothing to record."""
    left_out: tuple[str, ...] = ()
    """Parameters that were requested and not sent, because the model takes none of them."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls of the reply."""
    raw: str | None = None
    """The reply word for word, if the calls were in its text."""


def without_stable(messages: Sequence[Message]) -> list[Message]:
    """Return a new list of the messages without their `stable` marks for prompt caches; the
    messages themselves are not changed."""
    return [
        cast("Message", {name: value for name, value in m.items() if name != "stable"})
        if "stable" in m
        else m
        for m in messages
    ]


def text_of(content: Content) -> str:
    """Return the text of a message's content: its parts joined by line breaks, an image as
    `[image]`."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else "[image]" for part in content)


def usual_prompt(messages: Sequence[Message]) -> int:
    """Return an estimate of a prompt's tokens, a little higher than usual and at least 1: three
    bytes of text a token (English has about 4), 4 tokens for each message, 1500 for each image."""
    text = images = 0
    for message in messages:
        content = message["content"]
        text += len(text_of(content).encode("utf-8", "replace"))
        text += sum(len(call.arguments.encode()) + 64 for call in message.get("tool_calls", ()))
        if "reasoning" in message:
            text += len(message["reasoning"].model_dump_json())
        if not isinstance(content, str):
            images += sum(isinstance(part, ImagePart) for part in content)
    return text // 3 + 4 * len(messages) + 1500 * images + 1
