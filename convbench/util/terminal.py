"""The console for all output, on which no text can control the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from convbench.util.printable import make_printable


class Terminal(Console):
    """A rich console that makes every piece of text printable, in tables and progress too; rich's
    own control codes pass."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of a renderable with printable text."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text == "\n":
                yield piece
            else:
                yield piece._replace(text=make_printable(piece.text))


def ask_to_continue(what: str) -> bool | None:
    """Ask on the terminal whether to go on, and return True for `y` or `yes`, False for any other
    line or the end of input.

    Return None without asking if stdin or stderr is no terminal.
    """
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{what} Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
