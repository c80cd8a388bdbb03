"""Format the result of a query as a printed table, JSON, CSV or parquet."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import orjson
from rich.cells import cell_len, set_cell_size

from convbench.errors import QueryError
from convbench.store.query import QueryResult
from convbench.util.printable import make_printable

Format = Literal["table", "json", "csv", "parquet"]
FORMATS: tuple[Format, ...] = ("table", "json", "csv", "parquet")

MOST_ROWS = 1000
"""Rows that a printed table shows at most."""
NARROWEST = 12
"""Smallest width of a column. A result that is too wide for it is printed one field a line."""
FORMULA = r"^(?:[=+@\t\r]|-[^\s\d-])"
NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL")


def format_result(result: QueryResult, form: Format, width: int = 80) -> bytes:
    """Return the bytes of a result in a format, ending with a newline except for parquet.

    `table` shows at most 1,000 rows, cut to `width` terminal columns, and a last line such as `(3
    rows)`. `json` is one list of objects, one a line. `csv` has a header; null is an empty cell,
    and nested values are JSON. `parquet` is compressed with zstd; QueryError if it cannot hold the
    columns.
    """
    if form == "parquet":
        return _to_parquet(result)
    if form == "json":
        return _to_json(result)
    if form == "csv":
        return _to_csv(result)
    return (_format_table(result, width) + "\n").encode()


def _to_parquet(result: QueryResult) -> bytes:
    import pyarrow.parquet

    buffer = io.BytesIO()
    try:
        pyarrow.parquet.write_table(result.arrow, buffer, compression="zstd")
    except pyarrow.ArrowException as error:
        message = " ".join(str(error).split())
        raise QueryError(
            f"--format parquet: {message:.200}; expected other columns, or json"
        ) from None
    return buffer.getvalue()


def _to_json(result: QueryResult) -> bytes:
    """Return one JSON list with an object a line."""
    rows = [dict(zip(result.columns, _row_values(result, row), strict=True)) for row in result.rows]
    lines = [orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS, default=str) for row in rows]
    return b"[" + b",\n ".join(lines) + b"]\n"


def _to_csv(result: QueryResult) -> bytes:
    """Return a header and rows; null is empty, lists and mappings are JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(result.columns)
    for row in result.rows:
        writer.writerow(["" if v is None else _flat_value(v) for v in _row_values(result, row)])
    return text.getvalue().encode()


def count_formulas(result: QueryResult) -> int:
    """Return the number of cells in text columns that a spreadsheet would run as formulas, 0 if
    none.

    Such a text begins with `=`, `+`, `@`, a tab or a carriage return, or with `-` before anything
    but a space, a digit or another `-`. Nested values are not looked at.
    """
    import pyarrow
    import pyarrow.compute

    texts = (column for column in result.arrow.columns if pyarrow.types.is_string(column.type))
    begun = (pyarrow.compute.match_substring_regex(column, FORMULA) for column in texts)
    return sum(pyarrow.compute.sum(column).as_py() or 0 for column in begun)


def _row_values(result: QueryResult, row: Sequence[Any]) -> list[Any]:
    return [_json_value(value, kind) for value, kind in zip(row, result.types, strict=True)]


def _json_value(value: Any, kind: str) -> Any:
    """Return a value for JSON: mappings as dicts, decimals as numbers, bytes as hex digits."""
    if isinstance(value, Decimal):
        is_integral = value == value.to_integral_value()
        return (
            _json_integer(int(value))
            if is_integral and kind.endswith((",0)", "HUGEINT"))
            else float(value)
        )
    if kind.startswith("MAP(") and isinstance(value, list):
        return {str(key): item for key, item in value}
    if isinstance(value, bytes):
        return value.hex()
    return value


def _json_integer(value: int) -> int | str:
    """Return an integer, as text if it needs more than 64 bits."""
    return value if -(2**63) <= value < 2**64 else str(value)


def _flat_value(value: Any) -> Any:
    """Return a value for one cell: true/false in lower case, nested values as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
    return value


def _cell_text(value: Any) -> str:
    """Return a value or a column's name in one line. Text of a model may hold terminal escapes,
    which are replaced."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}" if math.isfinite(value) else str(value)
    text = " ".join(str(_flat_value(value)).split())
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def _format_table(result: QueryResult, width: int) -> str:
    shown = result.head(MOST_ROWS).rows
    if result.types == ("VARCHAR", "VARCHAR") and result.columns[0] == "explain_key":
        return make_printable("\n".join(row[1] for row in shown)).rstrip()
    heads = [_cell_text(name) for name in result.columns]
    cells = [[_cell_text(value) for value in _row_values(result, row)] for row in shown]
    wants = [
        max(map(cell_len, (name, *(row[i] for row in cells))), default=1)
        for i, name in enumerate(heads)
    ]
    widths = _fit_widths(wants, width)
    body = (
        _format_records(heads, cells, width)
        if widths is None
        else _format_grid(result, heads, cells, widths)
    )
    count = f"{len(result):,} row{'' if len(result) == 1 else 's'}"
    if len(result) > len(shown):
        count += f", the first {len(shown):,} shown; --format csv gives all"
    return f"{body}\n({count})" if body else f"({count})"


def _fit_widths(wants: Sequence[int], width: int) -> list[int] | None:
    """Return column widths that fit, the widest columns cut. Return None if a column would become
    too narrow."""
    room = width - 2 * (len(wants) - 1)
    widths = [min(want, max(room, NARROWEST)) for want in wants]
    while widths and sum(widths) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= NARROWEST:
            return None
        widths[widest] -= 1
    return widths


def _format_grid(
    result: QueryResult, heads: list[str], cells: list[list[str]], widths: Sequence[int]
) -> str:
    right = [kind.startswith(("U", *NUMBERS)) or "INT" in kind for kind in result.types]
    lines = [heads, ["─" * size for size in widths], *cells]
    return "\n".join(
        "  ".join(
            _pad_or_cut(text, size, at_right)
            for text, size, at_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def _pad_or_cut(text: str, size: int, right: bool) -> str:
    length = cell_len(text)
    if length > size:
        return set_cell_size(text, size - 1) + "…"
    return " " * (size - length) + text if right else text + " " * (size - length)


def _format_records(heads: list[str], cells: list[list[str]], width: int) -> str:
    """Return one field a line, for results of many columns."""
    name_width = min(max(map(cell_len, heads)), 30)
    blocks = []
    for number, row in enumerate(cells, 1):
        lines = [f"─ row {number} ".ljust(width, "─")]
        for name, text in zip(heads, row, strict=True):
            room = max(width - name_width - 2, 10)
            value = _pad_or_cut(text, room, False).rstrip()
            lines.append(f"{_pad_or_cut(name, name_width, False)}  {value}")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)
