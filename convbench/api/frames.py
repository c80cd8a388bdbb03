"""Convert tables to data frames: pandas by default, or Arrow or polars."""

from __future__ import annotations

from typing import Any, Literal

from convbench.errors import MissingDependency, SpecError
from convbench.reports.document import Cell, Document, Table

Frame = Literal["pandas", "arrow", "polars"]


def to_frame(arrow: Any, kind: Frame = "pandas") -> Any:
    """Return an Arrow table as a data frame of this kind: pandas, polars, or for `arrow` the table
    itself.

    Raises SpecError for an unknown kind, MissingDependency if polars is not installed.
    """
    if kind == "arrow":
        return arrow
    if kind == "pandas":
        return arrow.to_pandas()
    if kind != "polars":
        raise SpecError(f"frame: found {kind!r}; expected pandas, arrow or polars")
    try:
        import polars
    except ImportError:
        raise MissingDependency(
            "polars", needed_for="data frames of polars", install="pip install polars"
        ) from None
    return polars.from_arrow(arrow)


def document_frames(document: Document) -> dict[str, Any]:
    """Return the tables of a report as pandas data frames by label, in the report's order.

    A label that occurs again gets a number (`results`, `results-2`); a table without one is
    `table`.
    """
    frames: dict[str, Any] = {}
    for part in document.parts:
        for table in part.tables:
            label = table.label or "table"
            name, number = label, 1
            while name in frames:
                number += 1
                name = f"{label}-{number}"
            frames[name] = table_frame(table)
    return frames


def table_frame(table: Table) -> Any:
    """Return one table as a pandas data frame with its heads as columns, and `HEAD ±` after a head
    with errors.

    Numeric cells are floats, a percentage as its number (`45%` is 45.0) and an empty cell or `-` as
    missing; one that is no number stays text. A head that occurs again gets a number: `n (2)`.
    """
    import pandas

    columns: dict[str, list[Any]] = {}
    for index, column in enumerate(table.columns):
        cells = [row[index] if index < len(row) else Cell("") for row in table.rows]
        head = _free_name(column.head, columns)
        columns[head] = [_cell_value(cell) if column.numeric else cell.text for cell in cells]
        if any(cell.error for cell in cells):
            columns[f"{head} ±"] = [_parse_number(cell.error or "") for cell in cells]
    return pandas.DataFrame(columns)


def _free_name(head: str, taken: dict[str, list[Any]]) -> str:
    name, number = head, 1
    while name in taken:
        number += 1
        name = f"{head} ({number})"
    return name


def _cell_value(cell: Cell) -> Any:
    number = _parse_number(cell.text)
    return cell.text if number is None and cell.text not in ("", "-") else number


def _parse_number(text: str) -> float | None:
    try:
        return float(text.replace("−", "-").replace(",", "").rstrip("%"))
    except ValueError:
        return None
