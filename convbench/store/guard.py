"""Check SQL before it runs: only one statement that reads is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from convbench.errors import QueryError
from convbench.store.columns import HEAVY
from convbench.store.views import VIEW_NAMES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

MAY = (
    "expected a single read-only statement: SELECT, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, "
    "EXPLAIN"
)
EXPLAIN = re.compile(
    r"^\s*EXPLAIN\b(?:\s+ANALYZE\b)?(?:\s*\((?:[^()]|\([^()]*\))*\))?", re.IGNORECASE
)
LONG = frozenset(
    {
        "repeat",
        "range",
        "generate_series",
        "lpad",
        "rpad",
        "printf",
        "format",
        "bitstring",
        "list_resize",
        "array_resize",
        "list_reduce",
        "reduce",
        "array_reduce",
        "list_transform",
        "array_transform",
        "list_apply",
        "array_apply",
        "apply",
        "regexp_replace",
        "replace",
    }
)
"""Functions that make long values from short ones."""
WRITES = re.compile(r"(?:INSERT|UPDATE|DELETE|MERGE|COPY)\w*_NODE")


def reading_statement(connection: DuckDBPyConnection, sql: str) -> Statement:
    """Return the single statement in `sql`.

    Raises QueryError for none or several statements, for invalid SQL, and for any statement but
    SELECT (WITH, VALUES, DESCRIBE, SHOW and SUMMARIZE count as such) or EXPLAIN of one. A nested
    statement that writes is refused too.
    """
    import duckdb

    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(f"not valid SQL: {first_line(error)}") from None
    if len(statements) != 1:
        contents = f"{len(statements)} statements" if statements else "nothing"
        raise QueryError(f"found {contents}; {MAY}")
    _refuse_writes(connection, statements[0])
    return statements[0]


def _refuse_writes(connection: DuckDBPyConnection, statement: Statement) -> None:
    import duckdb

    kind = statement.type
    if kind == duckdb.StatementType.EXPLAIN:
        inner = EXPLAIN.sub("", statement.query, count=1)
        if inner == statement.query:
            raise QueryError(f"found an EXPLAIN that cannot be parsed; {MAY}")
        reading_statement(connection, inner)
    elif kind != duckdb.StatementType.SELECT:
        raise QueryError(f"found {kind.name}; queries are read-only; {MAY}")
    elif _has_writes(connection, statement.query):
        raise QueryError(f"found a nested statement that writes; queries are read-only; {MAY}")


def _has_writes(connection: DuckDBPyConnection, sql: str) -> bool:
    """Return True if a nested statement writes, as in `WITH x AS (INSERT …)`."""
    return any(
        WRITES.match(str(node.get("type"))) for node in _iter_nodes(syntax_tree(connection, sql))
    )


def has_short_values(tree: Any) -> bool:
    """Return True if no expression in a syntax tree calls a function of LONG; True also for None.

    DuckDB cannot be interrupted while such a function makes its value. In a FROM they make rows,
    and it can be, so calls there do not count.
    """
    rows = [node["function"] for node in _iter_nodes(tree) if node.get("type") == "TABLE_FUNCTION"]
    named = (n for n in _iter_nodes(tree) if not any(n is row for row in rows))
    return not any(str(node.get("function_name")).lower() in LONG for node in named)


def query_needs(connection: DuckDBPyConnection, sql: str) -> tuple[set[str], bool]:
    """Return (names of the views that `sql` reads, whether it needs the text of conversations).

    In doubt more is returned than is needed: a statement that is no SELECT gives the views it
    mentions, or all, and True; a query that can name tables in a text gives all views and True.
    """
    tree = syntax_tree(connection, sql)
    if tree is None:  # DESCRIBE, SUMMARIZE, EXPLAIN, …
        named = {name for name in VIEW_NAMES if re.search(rf"\b{name}\b", sql, re.IGNORECASE)}
        return named or set(VIEW_NAMES), True
    words = {value.lower() for value in _iter_strings(tree)}
    if words & {"show_ref", "query", "query_table"}:
        return set(VIEW_NAMES), True
    used = {name for name in VIEW_NAMES if name in words}
    text = "turns" in used or _wants_text(tree)
    return used, text


def _wants_text(tree: Any) -> bool:
    """Return True if the query names a heavy column, or all columns at once."""
    for node in _iter_nodes(tree):
        if node.get("class") == "STAR" or "NATURAL" in str(node.get("ref_type")):
            return True
        if node.get("class") == "POSITIONAL_REFERENCE" or node.get("type") == "PIVOT":
            return True
        names = [*node.get("column_names", ()), *node.get("using_columns", ())]
        if HEAVY & {str(name).lower() for name in names}:
            return True
    return False


def syntax_tree(connection: DuckDBPyConnection, sql: str) -> Any:
    """Return DuckDB's `json_serialize_sql` of a SELECT as a dict, or None for any other or invalid
    SQL."""
    rows = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    tree = json.loads(rows[0][0])
    return None if tree.get("error") else tree


def _iter_nodes(tree: Any) -> Iterator[dict[str, Any]]:
    stack = [tree]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _iter_strings(tree: Any) -> Iterator[str]:
    for node in _iter_nodes(tree):
        for value in node.values():
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from (item for item in value if isinstance(item, str))


def first_line(error: object) -> str:
    """Return the first line of an error's message, without a leading `… Error: `; its class's name
    if empty."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"^\w+ Error: ", "", line)
