"""Rule speaker of ColBench's frontend: shows the human how the agent's page and theirs look."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convbench.errors import DataError
from convbench.sandbox.browser import PageError, Shot, shoot
from convbench.sandbox.looks import visible
from convbench.schema import ImagePart, Message, TextPart, text_of
from convbench.schema.chat import Part

MADE = "This is how the agent's page looks:"
WANTED = "This is how the page you want looks:"
NO_PAGE = "The agent has shown no page."
_PAGE = re.compile(r"<html\b.*?</html\s*>", re.IGNORECASE | re.DOTALL)


async def screens(
    messages: list[Message], example: Mapping[str, Any], media: Path | None = None
) -> tuple[Part, ...]:
    """Show both pages as pictures, for a human played by a model that sees.

    Needs the hidden field `reference` (HTML) and the folder of images' bytes.
    """
    if media is None:
        raise DataError("the screenshots need a run's media folder; found none")
    made = await _made(messages)
    parts: list[Part] = [TextPart(text=NO_PAGE if made is None else MADE)]
    if made is not None:
        parts.append(_picture(made, media))
    wanted = await shoot(str(example["reference"]))
    return (*parts, TextPart(text=WANTED), _picture(wanted, media))


async def structure(messages: list[Message], example: Mapping[str, Any]) -> str:
    """Tell what is visible of both pages, for a human played by a model that reads only."""
    made = await _made(messages)
    wanted = visible((await shoot(str(example["reference"]))).boxes)
    first = NO_PAGE if made is None else f"{MADE}\n{visible(made.boxes)}"
    return f"{first}\n\n{WANTED}\n{wanted}"


async def _made(messages: list[Message]) -> Shot | None:
    page = page_of(messages)
    if page is None:
        return None
    try:
        return await shoot(page)
    except PageError:
        return None


def page_of(messages: list[Message]) -> str | None:
    """Return the last whole page that was shown to this speaker."""
    for message in reversed(messages):
        pages = _PAGE.findall(text_of(message["content"])) if message["role"] == "user" else []
        if pages:
            return str(pages[-1])
    return None


def _picture(shot: Shot, media: Path) -> ImagePart:
    """Write the picture under a name of its content."""
    name = hashlib.sha256(shot.png).hexdigest()[:24] + ".png"
    if not (media / name).exists():
        media.mkdir(parents=True, exist_ok=True)
        new = media / f".{name}.{id(shot)}"
        new.write_bytes(shot.png)
        new.replace(media / name)
    return ImagePart(file=name)
