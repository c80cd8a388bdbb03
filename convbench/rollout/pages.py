"""Rule speaker of ColBench's frontend: shows the human the agent's page and their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convbench.errors import DataError
from convbench.sandbox.browser import PageError, Shot, shoot
from convbench.sandbox.page import html_of, visible_text
from convbench.schema import ImagePart, Message, TextPart, text_of
from convbench.schema.chat import Part
from convbench.util.regular import open_new

AGENT_PAGE = "This is how the agent's page looks:"
GOAL_PAGE = "This is how the page you want looks:"
NO_PAGE = "The agent has shown no page."
BROKEN = "The agent's page could not be shown."


async def screens(
    messages: list[Message], example: Mapping[str, Any], media: Path | None = None
) -> tuple[Part, ...]:
    """Return a line of text and a screenshot of the agent's page, then a line and a screenshot of
    the goal, as message parts; the pictures are written to `media`.

    The agent's screenshot is missing if there is no page or it cannot be shown; the line says so.
    Needs the hidden field `reference` (HTML). Raise DataError without `media` or if the goal cannot
    be rendered.
    """
    if media is None:
        raise DataError("the screenshots need a run's media folder; found none")
    goal = await shoot(str(example["reference"]))
    shot, words = await _agent_page(messages)
    parts: list[Part] = [TextPart(text=words)]
    if shot is not None:
        parts.append(_save_picture(shot, media))
    return (*parts, TextPart(text=GOAL_PAGE), _save_picture(goal, media))


async def structure(messages: list[Message], example: Mapping[str, Any]) -> str:
    """Return a text of what is visible on both pages, for a human played by a text-only model.

    First the agent's page, the last complete one in the messages of role `user`, or a line that
    there is none or that it cannot be shown; then the goal, `example["reference"]`. One line a box:
    kind, tag, words, position.
    """
    goal = visible_text((await shoot(str(example["reference"]))).boxes)
    shot, words = await _agent_page(messages)
    first = words if shot is None else f"{words}\n{visible_text(shot.boxes)}"
    return f"{first}\n\n{GOAL_PAGE}\n{goal}"


async def _agent_page(messages: list[Message]) -> tuple[Shot | None, str]:
    """Return a shot of the agent's page, or None if it has none that can be shown, and the line to
    go with it."""
    page = page_of(messages)
    if page is None:
        return None, NO_PAGE
    try:
        return await shoot(page), AGENT_PAGE
    except PageError:
        return None, BROKEN


def page_of(messages: list[Message]) -> str | None:
    """Return the last complete HTML page in messages of role `user`; None if there is none."""
    for message in reversed(messages):
        page = html_of(text_of(message["content"])) if message["role"] == "user" else None
        if page is not None:
            return page
    return None


def _save_picture(shot: Shot, media: Path) -> ImagePart:
    """Write the picture to a file named by its content."""
    name = hashlib.sha256(shot.png).hexdigest()[:24] + ".png"
    if not (media / name).exists():
        media.mkdir(parents=True, exist_ok=True)
        new = media / f".{name}.{id(shot)}"
        with open_new(new) as file:
            file.write(shot.png)
        new.replace(media / name)
    return ImagePart(file=name)
