"""An agent that writes two pages, and a human who says what pictures came in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convbench.schema import ImagePart

FIRST = "Let me think of my secret. OUTPUT: <html><body><h1>Hello</h1></body></html>"
SECOND = "I WANT TO ANSWER: <html><body><h1>Hello</h1><p>More</p></body></html>"


def agent(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Write a page, then a better one."""
    return FIRST if sum(m["role"] == "assistant" for m in messages) == 0 else SECOND


def human(messages: list[dict[str, Any]], example: Mapping[str, Any]) -> str:
    """Count what is seen."""
    content = messages[-1]["content"]
    pictures = 0 if isinstance(content, str) else sum(isinstance(p, ImagePart) for p in content)
    return f"I see {pictures} pictures and {len(messages)} messages; make it green."
