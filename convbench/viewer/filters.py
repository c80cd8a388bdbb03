"""Turn the filters of a request into SQL over the index, and count the values of each filter."""
# ruff: noqa: S608 - names of our own; what users give goes in as parameters, free SQL is guarded

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convbench.errors import QueryError
from convbench.store import guard
from convbench.viewer.index import ViewIndex

if TYPE_CHECKING:
    from multidict import MultiMapping

    Query = MultiMapping[str]

RESULTS = {
    "correct": "{0}correct",
    "wrong": "{0}correct = false AND {0}answer IS NOT NULL",
    "unparsed": "{0}correct = false AND {0}answer IS NULL",
    "failed": "{0}failure IS NOT NULL",
    "ungraded": "{0}failure IS NULL AND {0}correct IS NULL",
}
"""Results of a conversation as SQL conditions; exactly one holds for each. `{0}` is the alias."""


def result_sql(table: str = "") -> str:
    """Return an SQL expression for the name of a conversation's result, one of RESULTS; `table` is
    the alias of its columns."""
    dot = f"{table}." if table else ""
    cases = (f"WHEN {sql.format(dot)} THEN '{name}'" for name, sql in RESULTS.items())
    return f"CASE {' '.join(cases)} END"


RESULT = result_sql()

CHOICES = ("task", "split", "policy", "protocol", "mode", "run")
"""Text columns that can be filtered by one or several values."""
FACETS = {name: name for name in (*CHOICES, "temperature")} | {"result": RESULT, "flag": "flags"}
"""Filters whose values are counted, with the column of each."""
SORTS = (
    "n",
    "question",
    "policy",
    "temperature",
    "answer",
    "result",
    "n_turns",
    "words",
    "cost_usd",
    "reward",
    "prompt_tokens",
    "completion_tokens",
    "stop",
    "sample",
    "task",
    "split",
    "protocol",
    "mode",
    "run",
    "attempts",
)
PAGE, MOST = 50, 500
LONGEST = 2000
"""Largest number of characters of a free condition."""
ID_FROM = 6
"""Smallest number of characters of a word that may be the start of a conversation_id."""
TERM = re.compile(r'"([^"]+)"|(\S+)')
TEXTED = "(SELECT * FROM conversations JOIN raw.texts USING (position)) AS conversations"
"""The conversations with the column `text`, which is searched and may be named in a condition."""
SHOWN = f"""
n, conversation_id, run_no, task, split, policy, sample, temperature, answer, {RESULT} AS result,
n_turns, words, flags, cost_usd, q, left(question, 240) AS question, protocol, mode,
prompt_tokens, completion_tokens, stop, seed, attempts
"""


def list_page(index: ViewIndex, query: Query) -> dict[str, Any]:
    """Return `total`, `offset` and `rows` for the filters, the order and the page of a request.

    A page has `limit` rows (50, at most 500); beyond the end it is empty. With `versus` a row with
    a partner also has `was` and `base_id`. Raise QueryError naming the parameter that is wrong.
    """
    where, values = where_clause(index, query)
    base, _ = _base_and_results(index, query)
    offset, limit = _parse_count(query, "offset", 0), min(_parse_count(query, "limit", PAGE), MOST)
    order = _order_clause(index, query)
    numbers = index.ordered_numbers(
        f"SELECT n::INTEGER AS n FROM conversations WHERE {where} ORDER BY {order}", values
    )
    page = numbers[offset : offset + limit].to_pylist()
    marks = ", ".join("?" * len(page)) or "NULL"
    shown = index.query_rows(
        f"SELECT {SHOWN}{reward_lists(index)} FROM conversations WHERE n IN ({marks})", page
    )
    by_number = {row["n"]: finite_row(row) for row in shown}
    if base is not None:
        for row in index.query_rows(partners_sql(base, marks), page):
            by_number[row["n"]] |= {"was": row["was"], "base_id": row["base_id"]}
    return {"total": len(numbers), "offset": offset, "rows": [by_number[n] for n in page]}


def pairs_sql(columns: str, first: int, other: int) -> str:
    """Return SQL that selects `columns` of the pairs of two runs, given by number: `a` is a
    conversation of run `first`, `b` one of run `other`.

    A pair has the same question, sample number and temperature, as in the report.
    """
    return (
        f"SELECT {columns} FROM conversations a JOIN conversations b "
        f"ON b.run_no = {other} AND {_same_question_sql(first)}"
    )


def _same_question_sql(first: int) -> str:
    return (
        f"a.run_no = {first} AND a.example_id = b.example_id AND a.sample = b.sample "
        "AND a.temperature IS NOT DISTINCT FROM b.temperature "
    )


def partners_sql(first: int, marks: str) -> str:
    """Return SQL for the paired conversations in run `first`: columns `n` (of the other), `base_id`
    and `was` (its result).

    `marks` are the placeholders of the parameters, the `n` of the others.
    """
    return (
        f"SELECT b.n, a.conversation_id AS base_id, {result_sql('a')} AS was FROM conversations b "
        f"JOIN conversations a ON {_same_question_sql(first)} WHERE b.n IN ({marks})"
    )


def _base_and_results(index: ViewIndex, query: Query) -> tuple[int | None, list[str]]:
    """Return (number of the run named by `versus`, results that `was` allows for its conversation);
    None and no results without `versus`."""
    base_id, was = _last_value(query, "versus"), query.getall("was", [])
    if not base_id:
        return None, []
    numbers = [k for k, run in enumerate(index.runs) if run.manifest.id == base_id]
    if not numbers:
        raise QueryError(f"versus: found {base_id!r:.80}; expected the id of one of these runs")
    unknown = [name for name in was if name not in RESULTS]
    if unknown:
        raise QueryError(f"was: found {unknown[0]!r}; expected one of {', '.join(RESULTS)}")
    return numbers[0], list(was)


def _versus_condition(index: ViewIndex, query: Query) -> tuple[list[str], list[Any]]:
    """Return the condition for a paired conversation in the run `versus` with one of the results
    `was`."""
    base, was = _base_and_results(index, query)
    if base is None:
        return [], []
    part = (
        "n IN (SELECT b.n FROM conversations b JOIN conversations a ON "
        f"{_same_question_sql(base)} WHERE b.run_no != {base}"
    )
    if was:
        part += " AND (" + " OR ".join(f"({RESULTS[name].format('a.')})" for name in was) + ")"
    return [part + ")"], []


def reward_lists(index: ViewIndex) -> str:
    """Return SQL, beginning with a comma, for two list columns: `rewards` by judge, and `unscored`,
    whether the judge failed."""
    each = range(len(index.judges))
    columns = ", ".join(f"reward_{k}" for k in each)
    lost = ", ".join(f"coalesce(failed_{k}, false)" for k in each)
    return f", [{columns}]::DOUBLE[] AS rewards, [{lost}]::BOOLEAN[] AS unscored"


def finite_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new mapping with NaN and infinity replaced by None, also in lists, for JSON."""
    return {name: _finite_value(value) for name, value in row.items()}


def _finite_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite_value(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def facet_counts(index: ViewIndex, query: Query) -> dict[str, list[list[Any]]]:
    """Return `[[value, count], …]` by filter: the number of conversations that would match each
    value, the other filters unchanged.

    Every filter in FACETS is a key. Values are sorted; missing ones are left out. Raise QueryError
    for a wrong parameter.
    """
    counts: dict[str, list[list[Any]]] = {}
    free: list[str] = []
    for name in FACETS:
        if query.getall(name, []):
            counts |= _count_facets(index, without_filter(query, name), [name])
        else:
            free.append(name)
    return counts | _count_facets(index, query, free)


def _count_facets(
    index: ViewIndex, query: Query, names: Sequence[str]
) -> dict[str, list[list[Any]]]:
    """Return the counts of the values of some filters among the matching conversations."""
    where, values = where_clause(index, query)
    single = [name for name in names if name != "flag"]
    counts: dict[str, list[list[Any]]] = {name: [] for name in names}
    if single:
        columns = ", ".join(f"{FACETS[name]} AS {name}" for name in single)
        sets = ", ".join(f"({name})" for name in single)
        bits = ", ".join(single)
        rows = index.query_rows(
            f"SELECT {bits}, grouping({bits}) AS bits, count(*) AS n FROM "
            f"(SELECT {columns} FROM conversations WHERE {where}) "
            f"GROUP BY GROUPING SETS ({sets}) ORDER BY ALL",
            values,
        )
        for row in rows:
            for position, name in enumerate(single):
                alone = ((1 << len(single)) - 1) ^ (1 << (len(single) - 1 - position))
                if row["bits"] == alone and row[name] is not None:
                    counts[name].append([row[name], row["n"]])
    if "flag" in counts:
        rows = index.query_rows(
            "SELECT flag, count(*) AS n FROM (SELECT unnest(flags) AS flag FROM conversations "
            f"WHERE {where}) GROUP BY flag ORDER BY flag",
            values,
        )
        counts["flag"] = [[row["flag"], row["n"]] for row in rows]
    return counts


def without_filter(query: Query, name: str) -> Query:
    """Return the parameters of a request without one filter."""
    from multidict import MultiDict

    return MultiDict((key, value) for key, value in query.items() if key != name)


def where_clause(index: ViewIndex, query: Query) -> tuple[str, list[Any]]:
    """Return (SQL condition, its parameters) for all filters of a request; the condition is true
    without a filter.

    Raise QueryError naming the parameter that is wrong.
    """
    parts = ["true"]
    values: list[Any] = []
    for name in CHOICES:
        if chosen := query.getall(name, []):
            parts.append(f"{name} IN ({', '.join('?' * len(chosen))})")
            values += chosen
    if chosen := query.getall("temperature", []):
        parts.append(f"temperature IN ({', '.join('?' * len(chosen))})")
        values += [_parse_number("temperature", text) for text in chosen]
    if searched := search_terms(_last_value(query, "q")):
        parts.append(f"n IN (SELECT n FROM {_matching_table(index, searched)})")
    for part, arguments in (
        _result_condition(query),
        _flag_condition(query),
        _reward_condition(index, query),
        _versus_condition(index, query),
    ):
        parts += part
        values += arguments
    if clause := _last_value(query, "where").strip():
        parts.append(f"n IN ({free_condition(index, clause)})")
    return " AND ".join(f"({part})" for part in parts), values


def _matching_table(index: ViewIndex, searched: Sequence[str]) -> str:
    """Return the table of the rows that contain all of these words and phrases."""
    if known := index.known_matches(searched):
        return known
    parts, values = [], []
    for term in searched:
        by_id = len(term) >= ID_FROM and _begins_id(index, term)
        parts.append(
            "(contains(text, lower(?))" + " OR starts_with(conversation_id, ?)" * by_id + ")"
        )
        values += [term] * (1 + by_id)
    return index.matching_table(searched, " AND ".join(parts), values)


def _begins_id(index: ViewIndex, term: str) -> bool:
    """Return True if an id begins with this word. For most words DuckDB's block statistics rule it
    out; reading all ids in the search would take a tenth longer."""
    sql = "SELECT 1 FROM conversations WHERE starts_with(conversation_id, ?) LIMIT 1"
    return bool(index.query_rows(sql, [term]))


def search_terms(text: str) -> list[str]:
    """Return the words and "quoted phrases" of a search without their quotes, in order; empty for
    an empty text."""
    return [phrase or word.replace('"', "") for phrase, word in TERM.findall(text)]


def free_condition(index: ViewIndex, clause: str) -> str:
    """Return the SQL query that selects the numbers `n` of the rows for a free SQL condition,
    checked as in `convbench query`.

    Raise QueryError unless it is a single condition of at most 2,000 characters that only reads and
    names known columns.
    """
    source = TEXTED if re.search(r"\btext\b", clause, re.IGNORECASE) else "conversations"
    sql = f"SELECT n FROM {source} WHERE (\n{clause}\n)"
    tree = index.guarded_tree(sql)
    nodes = [statement.get("node", {}) for statement in (tree or {}).get("statements", [])]
    is_select = len(nodes) == 1 and nodes[0].get("type") == "SELECT_NODE"
    if not is_select or nodes[0].get("modifiers") or nodes[0].get("group_expressions"):
        raise QueryError("expected one condition, as after WHERE, e.g. words > 200 AND correct")
    if len(clause) > LONGEST or not guard.has_short_values(tree):
        raise QueryError(
            f"expected a condition of at most {LONGEST:,} characters, without functions that "
            "produce long values (repeat, lpad, …); use convbench query for those"
        )
    try:
        index.query_rows("EXPLAIN " + sql)  # resolves the names without running it
    except QueryError as error:
        if "Referenced column" not in str(error):
            raise
        message = str(error).rstrip("!.")
        raise QueryError(f"{message}; available columns: {', '.join(index.columns)}") from None
    return sql


def _result_condition(query: Query) -> tuple[list[str], list[Any]]:
    chosen = query.getall("result", [])
    unknown = [name for name in chosen if name not in RESULTS]
    if unknown:
        raise QueryError(f"result: found {unknown[0]!r}; expected one of {', '.join(RESULTS)}")
    return ([" OR ".join(f"({RESULTS[name].format('')})" for name in chosen)] if chosen else []), []


def _flag_condition(query: Query) -> tuple[list[str], list[Any]]:
    chosen = query.getall("flag", [])
    if not chosen:
        return [], []
    if "any" in chosen:
        return ["len(flags) > 0"], []
    return ["list_has_any(flags, ?::VARCHAR[])"], [list(chosen)]


def _reward_condition(index: ViewIndex, query: Query) -> tuple[list[str], list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    column = reward_column(index, query)
    for name, sign in (("min", ">="), ("max", "<=")):
        if text := _last_value(query, name):
            if column is None:
                raise QueryError("a reward range needs a judge; found no verdicts in these runs")
            parts.append(f"{column} {sign} ?")
            values.append(_parse_number(name, text))
    if column is not None and _last_value(query, "judge"):
        parts.append(f"({column} IS NOT NULL OR {column.replace('reward', 'failed')})")
    return parts, values


def reward_column(index: ViewIndex, query: Query) -> str | None:
    """Return the name of the reward column of the request's `judge`, else of the first judge; None
    if there are no judges.

    Raise QueryError for an unknown judge.
    """
    judge = _last_value(query, "judge")
    if judge and judge not in index.judges:
        known = ", ".join(index.judges) or "no judge"
        raise QueryError(f"judge: found {judge!r}; expected one of {known}")
    if not index.judges:
        return None
    return f"reward_{index.judges.index(judge) if judge else 0}"


def _order_clause(index: ViewIndex, query: Query) -> str:
    name = _last_value(query, "sort") or "n"
    if name not in SORTS:
        raise QueryError(f"sort: found {name!r}; expected one of {', '.join(SORTS)}")
    column = {"result": RESULT, "reward": reward_column(index, query) or "n"}.get(name, name)
    return f"{column} {'DESC' if _last_value(query, 'desc') else 'ASC'} NULLS LAST, n"


def _last_value(query: Query, name: str) -> str:
    values: Sequence[str] = query.getall(name, [])
    return values[-1] if values else ""


def _parse_number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise QueryError(f"{name}: found {text!r}; expected a number")
    return value


def _parse_count(query: Query, name: str, default: int) -> int:
    text = _last_value(query, name)
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise QueryError(f"{name}: found {text!r}; expected a whole number from 0")
    return int(text) if text else default
