"""Print help in narrow terminals without cutting: a word too long for its column is folded."""

from __future__ import annotations

import re
from typing import Any

OF_PYTHON = re.compile(
    r"<(list\[)?(bool|str|[Pp]ath)\]?>|(?<!\s)\s*+\[(?=[^\]]{0,40}\d{16})[^\]]{0,80}\]"
)
"""Types in help that tell a user nothing: of flags, of named arguments, and the range of 64-bit
numbers."""
CHOICES = 24
"""Width of a column of choices."""


def fold_tables() -> None:
    """Replace, in this process, the table class that typer's `--help` uses by one that folds long
    text.

    rich would cut it with an ellipsis.
    """
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text
    from typer import rich_utils

    def join_paragraph(cell: Any) -> Any:
        """Return a help text and its default as one text; in two columns each would be cut."""
        parts = cell.renderables if isinstance(cell, Columns) else []
        texts = [part for part in parts if isinstance(part, Text)]
        return Text(" ").join(texts) if texts and len(texts) == len(parts) else cell

    def short_label(cell: Any) -> Any:
        """Return the label of an option's value without Python's types; choices are not broken."""
        if not isinstance(cell, Text):
            return cell
        label = OF_PYTHON.sub("", cell.plain)
        label = label if " " in label else "\n".join(_break_lines(label, "|", CHOICES))
        return cell if label == cell.plain else Text(label, cell.style)

    class FoldingTable(Table):
        def add_row(self, *cells: Any, **style: Any) -> None:
            *before, kind, text = map(join_paragraph, cells)
            super().add_row(*before, short_label(kind), text, **style)
            for column in self.columns:
                column.overflow = "fold"

    setattr(rich_utils, "Table", FoldingTable)  # noqa: B010 - a name of its own that it does not export


def _break_lines(text: str, sign: str, width: int) -> list[str]:
    """Return a text as lines of at most `width` columns, broken after `sign`."""
    lines = [""]
    parts = text.split(sign)
    for part in [*(piece + sign for piece in parts[:-1]), parts[-1]]:
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return lines
