"""What a page shows, in words, for a reader without eyes."""

from __future__ import annotations

from convbench.sandbox.browser import Box

LINES = 60


def visible(boxes: tuple[Box, ...]) -> str:
    """Return the visible structure, top to bottom: kind, words, place."""
    lines = []
    for box in sorted(boxes, key=lambda b: (round(b.top / 20), b.left)):
        words = f" {box.words!r}" if box.words else ""
        place = f"x {box.left:.0f}-{box.left + box.width:.0f}, y {box.top:.0f}"
        lines.append(f"{box.kind} <{box.tag}>{words} at {place}")
    return "\n".join(lines[:LINES])
