"""Messages as the OpenAI chat API writes them, images as data URIs."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError
from convbench.models.tools import read_arguments
from convbench.regular import open_to_read
from convbench.schema import ImagePart, Message, Reasoning, ToolCall, text_of
from convbench.schema.chat import Part
from convbench.views import shown

MARK = {"type": "ephemeral"}
"""Says that all up to here is to be cached (Anthropic's `cache_control`)."""


def wire(messages: Sequence[Message], media: Path | None, *, marks: bool = False) -> list[Any]:
    """Return messages in JSON form; `media` is the folder of the images' bytes. With `marks` what
    other calls begin with is marked: the `stable` head of a message, and the system prompt."""
    found = [_one(message, media) for message in messages]
    if marks and any("stable" in message for message in messages):
        return [_marked(out, message) for out, message in zip(found, messages, strict=True)]
    return found


def _marked(out: dict[str, Any], message: Message) -> dict[str, Any]:
    """Return a message whose stable head ends in a mark."""
    content = out["content"]
    stable = len(content) if message["role"] == "system" else message.get("stable", 0)
    if not stable or not isinstance(content, str) or not content[:stable].strip():
        return out
    head: dict[str, Any] = {"type": "text", "text": content[:stable], "cache_control": MARK}
    rest = content[stable:]
    tail = [{"type": "text", "text": rest}] if rest.strip() else []
    return {**out, "content": [head, *tail]}


def _one(message: Message, media: Path | None) -> dict[str, Any]:
    content = message["content"]
    out: dict[str, Any] = {
        "role": message["role"],
        "content": content if isinstance(content, str) else _parts(content, media),
    }
    if "name" in message:
        out["name"] = message["name"]
    if "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    if message.get("tool_calls"):
        out["content"] = out["content"] or None
        out["tool_calls"] = [_call(call) for call in message["tool_calls"]]
    reasoning = message.get("reasoning")
    return out if reasoning is None else _thinking(out, reasoning, text_of(content))


def _call(call: ToolCall) -> dict[str, Any]:
    """Return a call; arguments that are no JSON object are sent back as one that holds them, for
    some providers refuse them."""
    arguments = call.arguments
    if read_arguments(arguments) is None:
        arguments = json.dumps({"unreadable": arguments})
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments or "{}"},
    }


def _thinking(out: dict[str, Any], reasoning: Reasoning, content: str) -> dict[str, Any]:
    """Return an assistant message with its reasoning where it came from."""
    if reasoning.blocks:
        blocks = [block.model_dump(exclude_none=True) for block in reasoning.blocks]
        return {**out, "thinking_blocks": blocks}
    if reasoning.via == "tags":
        return {**out, "content": shown(reasoning, content)}
    via = "reasoning" if reasoning.via == "reasoning" else "reasoning_content"
    return {**out, via: reasoning.text}


def _parts(content: tuple[Part, ...], media: Path | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, ImagePart):
            url = _data_uri(str((media or Path("media")) / part.file), part.media_type)
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": part.text})
    return parts


@lru_cache(maxsize=64)
def _data_uri(path: str, media_type: str) -> str:
    try:
        with open_to_read(Path(path)) as file:
            data = file.read()
    except OSError as error:
        line = f"{path}: image cannot be read: {error.strerror}"
        raise FatalModelError(line, stops_run=False) from None
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
