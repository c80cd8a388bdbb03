"""Two policies and two humans by rules, over the embedded world's questions."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import Any

from convbench.pocket.speakers import read_field
from convbench.pocket.world import PROPERTIES, make_world

Messages = list[dict[str, str]]


def guess(messages: Messages, example: Mapping[str, Any]) -> str:
    """Ask about anything, then guess."""
    if not any(message["role"] == "assistant" for message in messages):
        return "Which shape?"
    label = "ABCD"[zlib.crc32(str(read_field(example, "choices")).encode()) % 4]
    return f"I guess. I WANT TO ANSWER: {label}"


def ask(messages: Messages, example: Mapping[str, Any]) -> str:
    """Ask for what is wanted, then answer by what was told."""
    prop = next(p for p in PROPERTIES if p in str(read_field(example, "question")))
    if not any(message["role"] == "assistant" for message in messages):
        return f"Which {prop}?"
    told = set(re.findall(r"\w+", messages[-1]["content"]))
    world = make_world()
    for choice in read_field(example, "choices"):
        if world.value(choice["text"], prop) in told:
            return f"I WANT TO ANSWER: {choice['label']}"
    return guess(messages, example)
