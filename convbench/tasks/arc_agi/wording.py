"""How a row is said: demonstrations `grid -> grid#` in the system message, then `grid -> `."""

from __future__ import annotations

from convbench.schema.chat import Message
from convbench.tasks.arc_agi.grids import Grid, Puzzle, Style, read, written

END = "#"
"""What ends an output grid."""
SENTENCE = (
    "Each line shows a grid of colours from 0 to 9 and the grid that one and the same rule makes "
    f"of it, ended by {END}. Find the rule and apply it to the last grid; answer with the grid "
    "alone."
)


def prompt(puzzle: Puzzle, style: Style = "lists", sentence: str = SENTENCE) -> list[Message]:
    """Return the messages that ask for a puzzle's test output."""
    lines = [f"{written(p.input, style)} -> {written(p.output, style)}{END}" for p in puzzle.shown]
    system = "\n".join(([sentence] if sentence else []) + lines)
    user: Message = {"role": "user", "content": f"{written(puzzle.test.input, style)} -> "}
    return [{"role": "system", "content": system}, user] if system else [user]


def answer(grid: Grid, style: Style = "lists") -> str:
    """Return what is said of an output."""
    return written(grid, style) + END


def heard(reply: str, style: Style = "lists") -> Grid | None:
    """Return the grid of a reply, up to its end mark; None where there is none."""
    return read(reply.partition(END)[0], style)
