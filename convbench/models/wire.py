"""Messages as the OpenAI chat API writes them, images as data URIs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from convbench.errors import FatalModelError
from convbench.schema import ImagePart, Message


def wire(messages: Sequence[Message], media: Path | None) -> list[Any]:
    """Return messages in JSON form; `media` is the folder of the images' bytes."""
    return [
        message if isinstance(message["content"], str) else _parts(message, media)
        for message in messages
    ]


def _parts(message: Message, media: Path | None) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    for part in message["content"]:
        if isinstance(part, ImagePart):
            url = _data_uri(str((media or Path("media")) / part.file), part.media_type)
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif not isinstance(part, str):
            parts.append({"type": "text", "text": part.text})
    return {**message, "content": parts}


@lru_cache(maxsize=64)
def _data_uri(path: str, media_type: str) -> str:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        line = f"{path}: image cannot be read: {error.strerror}"
        raise FatalModelError(line, stops_run=False) from None
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"
