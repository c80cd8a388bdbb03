"""Help in narrow terminals: a word that is too long for its column is folded, never cut."""

from __future__ import annotations

import re
from typing import Any

OF_PYTHON = re.compile(
    r"<(list\[)?(bool|str|[Pp]ath)\]?>|(?<!\s)\s*+\[(?=[^\]]{0,40}\d{16})[^\]]{0,80}\]"
)
"""What says nothing to who types: that a flag is a flag, the type behind an argument's own name,
and that a number has at most 64 bits."""
CHOICES = 24
"""Columns of several choices."""


def fold() -> None:
    """Have the tables of `--help` fold what is too long; rich would end it with an ellipsis."""
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text
    from typer import rich_utils

    def paragraph(cell: Any) -> Any:
        """Return a help text and its default as one text: side by side each would be cut."""
        parts = cell.renderables if isinstance(cell, Columns) else []
        texts = [part for part in parts if isinstance(part, Text)]
        return Text(" ").join(texts) if texts and len(texts) == len(parts) else cell

    def taken(cell: Any) -> Any:
        """Return what an option takes, in the words of who types it; choices are kept whole."""
        if not isinstance(cell, Text):
            return cell
        label = OF_PYTHON.sub("", cell.plain)
        label = label if " " in label else "\n".join(_lines(label, "|", CHOICES))
        return cell if label == cell.plain else Text(label, cell.style)

    class Folding(Table):
        def add_row(self, *cells: Any, **style: Any) -> None:
            *before, kind, text = map(paragraph, cells)
            super().add_row(*before, taken(kind), text, **style)
            for column in self.columns:
                column.overflow = "fold"

    setattr(rich_utils, "Table", Folding)  # noqa: B010 - a name of its own that it does not export


def _lines(text: str, sign: str, width: int) -> list[str]:
    """Return text broken behind a sign, where a line would be wider."""
    lines = [""]
    parts = text.split(sign)
    for part in [*(one + sign for one in parts[:-1]), parts[-1]]:
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return lines
