"""Help in narrow terminals: a word that is too long for its column is folded, never cut."""

from __future__ import annotations

from typing import Any


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

    class Folding(Table):
        def add_row(self, *cells: Any, **style: Any) -> None:
            super().add_row(*map(paragraph, cells), **style)
            for column in self.columns:
                column.overflow = "fold"

    setattr(rich_utils, "Table", Folding)  # noqa: B010 - a name of its own that it does not export
