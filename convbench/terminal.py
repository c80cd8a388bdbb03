"""The console on which everything is shown: no text of strangers steers the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from convbench.printable import printable


class Terminal(Console):
    """A console of rich's whose every piece of text is `printable`, in tables and progress too.
    What rich itself steers with goes through."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the pieces of what is shown."""
        for piece in super().render(renderable, options):
            if piece.control or piece.text == "\n":
                yield piece
            else:
                yield piece._replace(text=printable(piece.text))


def agreed(what: str) -> bool | None:
    """Ask on a terminal whether to go on; None where there is none to ask."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print(f"{what} Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
