"""Run one read-only SQL query over runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.errors import QueryError
from convbench.store import guard, tables, views
from convbench.store.limits import SECONDS, limit_query
from convbench.store.run import Run

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


MORE = "narrow the query, or allow more time: --timeout SECONDS"


@dataclass(frozen=True)
class QueryResult:
    """Result of a query."""

    columns: tuple[str, ...]
    """Names; a repeated one gets a number."""
    types: tuple[str, ...]
    """DuckDB types, e.g. `VARCHAR`, `DOUBLE`."""
    arrow: Any
    """The result as a pyarrow table."""

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return all rows as a list of tuples of Python values, empty without rows.

        A column with times that Python lacks (infinite ones, the year 290000) is returned as
        DuckDB's text.
        """
        lists = [_column_values(column) for column in self.arrow.columns]
        return list(zip(*lists, strict=True)) if lists else []

    def head(self, count: int) -> QueryResult:
        """Return a new result with the first `count` rows, or all if there are fewer."""
        return QueryResult(self.columns, self.types, self.arrow.slice(0, count))


def run_query(
    sql: str, runs: Sequence[Run], *, seconds: float = SECONDS, exit_on_timeout: bool = False
) -> QueryResult:
    """Return the result of one SELECT-like statement over the views of these runs together
    (`views`).

    Sums of integers are 64-bit integers, and intervals text. Raises QueryError for SQL that is
    wrong, does more than read, takes longer than `seconds` or too much memory; RunError for a
    damaged run. With `exit_on_timeout` this process ends itself if DuckDB cannot be interrupted
    (`limits`).
    """
    import duckdb

    with duckdb.connect(":memory:") as scout:
        statement = guard.reading_statement(scout, sql)
        view_names, text = guard.query_needs(scout, sql)
    connection = tables.connect_runs(runs, view_names, text=text)
    try:
        with limit_query(connection, seconds, MORE, exit_on_timeout=exit_on_timeout):
            relation = connection.sql(statement.query)
            names = _unique_names(relation.columns)
            kinds = tuple(str(kind) for kind in relation.types)
            table = relation.to_arrow_table().rename_columns(list(names))
    except duckdb.Error as error:
        raise QueryError(_error_line(connection, error, view_names)) from None
    finally:
        connection.close()
    return QueryResult(names, kinds, _plain_intervals(_plain_integers(table)))


def _column_values(column: Any) -> list[Any]:
    """Return the values of an Arrow column."""
    try:
        values: list[Any] = column.to_pylist()
        return values
    except (OverflowError, ValueError):
        return _column_texts(column)


def _column_texts(column: Any) -> list[str | None]:
    """Return the values of an Arrow column as DuckDB writes them."""
    import duckdb
    import pyarrow

    with duckdb.connect(":memory:") as writer:
        rows = writer.from_arrow(pyarrow.table({"value": column})).project("value::VARCHAR")
        return [value for (value,) in rows.fetchall()]


def _plain_integers(table: Any) -> Any:
    """Return a table with decimals of scale 0, which sums of integers are, as 64-bit integers."""
    import pyarrow

    for index, field in enumerate(table.schema):
        if pyarrow.types.is_decimal(field.type) and field.type.scale == 0:
            try:
                column = table.column(index).cast(pyarrow.int64())
            except pyarrow.ArrowInvalid:
                continue
            table = table.set_column(index, field.name, column)
    return table


def _plain_intervals(table: Any) -> Any:
    """Return a table with intervals (`1 day`) as text, since parquet and JSON have none."""
    import pyarrow

    for index, field in enumerate(table.schema):
        if _has_interval(field.type):
            texts = pyarrow.array(_column_texts(table.column(index)), pyarrow.string())
            table = table.set_column(index, field.name, texts)
    return table


def _has_interval(kind: Any) -> bool:
    import pyarrow

    inside = (kind.field(number).type for number in range(kind.num_fields))
    return pyarrow.types.is_interval(kind) or any(map(_has_interval, inside))


def _unique_names(names: list[str]) -> tuple[str, ...]:
    """Return names with a number added to repeated ones: x, x_1."""
    out: list[str] = []
    for name in names:
        new, count = name, 0
        while new in out:
            count += 1
            new = f"{name}_{count}"
        out.append(new)
    return tuple(out)


def _error_line(
    connection: DuckDBPyConnection, error: Exception, view_names: Collection[str]
) -> str:
    """Return DuckDB's message in one line, with the tables or columns that exist."""
    import duckdb

    message = guard.first_line(error).rstrip("!.")
    if isinstance(error, duckdb.PermissionException) or "disabled by configuration" in message:
        tables_read = ", ".join(views.VIEW_NAMES)
        return f"a query can read only the run's own tables ({tables_read}); found: {message}"
    if isinstance(error, duckdb.CatalogException) and "Table with name" in message:
        return f"{message}; available tables: {', '.join(views.VIEW_NAMES)}"
    if isinstance(error, duckdb.BinderException) and "column" in message.lower():
        return f"{message}; available columns: {_describe_columns(connection, view_names)}"
    if boolean := re.search(r"'(\w+)\(BOOLEAN\)'", message):
        name = boolean[1]
        return f"{message}; true and false count as 1 and 0 with ::int, e.g. {name}(correct::int)"
    return message


def _describe_columns(connection: DuckDBPyConnection, view_names: Collection[str]) -> str:
    rows = connection.execute(
        "SELECT table_name, string_agg(column_name, ', ' ORDER BY column_index) "
        "FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal GROUP BY table_name "
        "ORDER BY table_name"
    ).fetchall()
    return " · ".join(f"{name}({columns})" for name, columns in rows if name in view_names)
