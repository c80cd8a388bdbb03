"""Turn the filters of a request into SQL over the index, and count the values of each filter."""
# ruff: noqa: S608 - names of our own; what users give goes in as parameters, free SQL is guarded

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from convbench.errors import QueryError
from convbench.store import guard
from convbench.view.index import Index

if TYPE_CHECKING:
    from multidict import MultiMapping

    Asked = MultiMapping[str]

RESULTS = {
    "correct": "{0}correct",
    "wrong": "{0}correct = false AND {0}answer IS NOT NULL",
    "unparsed": "{0}correct = false AND {0}answer IS NULL",
    "failed": "{0}failure IS NOT NULL",
    "ungraded": "{0}failure IS NULL AND {0}correct IS NULL",
}
"""Results of a conversation as SQL conditions; exactly one holds for each. `{0}` is the alias."""


def result(table: str = "") -> str:
    """Return SQL for the name of a conversation's result; `table` is an alias."""
    dot = f"{table}." if table else ""
    cases = (f"WHEN {sql.format(dot)} THEN '{name}'" for name, sql in RESULTS.items())
    return f"CASE {' '.join(cases)} END"


RESULT = result()

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
prompt_tokens, completion_tokens, stop, seed, attempts, branch_parent IS NOT NULL AS branch
"""


def listing(index: Index, asked: Asked) -> dict[str, Any]:
    """Return `{total, offset, rows}` for the filters, the order and the page of a request.

    Raises QueryError naming the parameter that is wrong.
    """
    where, values = conditions(index, asked)
    base, _ = _pair(index, asked)
    offset, limit = _whole(asked, "offset", 0), min(_whole(asked, "limit", PAGE), MOST)
    order = _order(index, asked)
    found = index.order(
        f"SELECT n::INTEGER AS n FROM conversations WHERE {where} ORDER BY {order}", values
    )
    page = found[offset : offset + limit].to_pylist()
    marks = ", ".join("?" * len(page)) or "NULL"
    shown = index.ask(
        f"SELECT {SHOWN}{rewards(index)} FROM conversations WHERE n IN ({marks})", page
    )
    by_number = {row["n"]: tidy(row) for row in shown}
    if base is not None:
        for row in index.ask(partners(base, marks), page):
            by_number[row["n"]] |= {"was": row["was"], "base_id": row["base_id"]}
    return {"total": len(found), "offset": offset, "rows": [by_number[n] for n in page]}


def paired(columns: str, first: int, other: int) -> str:
    """Return SQL for the pairs of two runs: `a` is a conversation of Base, `b` one of the other run
    with the same question, sample number and temperature, as in the report."""
    return (
        f"SELECT {columns} FROM conversations a JOIN conversations b "
        f"ON b.run_no = {other} AND {_same(first)}"
    )


def _same(first: int) -> str:
    return (
        f"a.run_no = {first} AND a.example_id = b.example_id AND a.sample = b.sample "
        "AND a.temperature IS NOT DISTINCT FROM b.temperature "
        "AND a.branch_parent IS NULL AND b.branch_parent IS NULL"
    )


def partners(first: int, marks: str) -> str:
    """Return SQL for the paired conversations of Base; the parameters are the `n` of the others."""
    return (
        f"SELECT b.n, a.conversation_id AS base_id, {result('a')} AS was FROM conversations b "
        f"JOIN conversations a ON {_same(first)} WHERE b.n IN ({marks})"
    )


def _pair(index: Index, asked: Asked) -> tuple[int | None, list[str]]:
    """Return (number of the run named by `versus`, results that `was` allows for its conversation);
    None and no results without `versus`."""
    wanted, was = _last(asked, "versus"), asked.getall("was", [])
    if not wanted:
        return None, []
    numbers = [k for k, run in enumerate(index.runs) if run.manifest.id == wanted]
    if not numbers:
        raise QueryError(f"versus: found {wanted!r:.80}; expected the id of one of these runs")
    unknown = [name for name in was if name not in RESULTS]
    if unknown:
        raise QueryError(f"was: found {unknown[0]!r}; expected one of {', '.join(RESULTS)}")
    return numbers[0], list(was)


def _versus(index: Index, asked: Asked) -> tuple[list[str], list[Any]]:
    """Return the condition for a paired conversation in the run `versus` with one of the results
    `was`."""
    base, was = _pair(index, asked)
    if base is None:
        return [], []
    part = (
        "n IN (SELECT b.n FROM conversations b JOIN conversations a ON "
        f"{_same(base)} WHERE b.run_no != {base}"
    )
    if was:
        part += " AND (" + " OR ".join(f"({RESULTS[name].format('a.')})" for name in was) + ")"
    return [part + ")"], []


def rewards(index: Index) -> str:
    """Return two list columns: the judges' rewards, and whether a judge failed."""
    each = range(len(index.judges))
    given = ", ".join(f"reward_{k}" for k in each)
    lost = ", ".join(f"coalesce(failed_{k}, false)" for k in each)
    return f", [{given}]::DOUBLE[] AS rewards, [{lost}]::BOOLEAN[] AS unscored"


def tidy(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with NaN and infinity replaced by None, for JSON."""
    return {name: _finite(value) for name, value in row.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def following(index: Index, asked: Asked) -> dict[str, list[list[Any]]]:
    """Return for each filter its values with the number of conversations that would match, the
    other filters unchanged: `[[value, count], …]` by filter."""
    found: dict[str, list[list[Any]]] = {}
    free: list[str] = []
    for name in FACETS:
        if asked.getall(name, []):
            found |= _counted(index, without(asked, name), [name])
        else:
            free.append(name)
    return found | _counted(index, asked, free)


def _counted(index: Index, asked: Asked, names: Sequence[str]) -> dict[str, list[list[Any]]]:
    """Return the counts of the values of some filters among the matching conversations."""
    where, values = conditions(index, asked)
    plain = [name for name in names if name != "flag"]
    found: dict[str, list[list[Any]]] = {name: [] for name in names}
    if plain:
        columns = ", ".join(f"{FACETS[name]} AS {name}" for name in plain)
        sets = ", ".join(f"({name})" for name in plain)
        bits = ", ".join(plain)
        rows = index.ask(
            f"SELECT {bits}, grouping({bits}) AS bits, count(*) AS n FROM "
            f"(SELECT {columns} FROM conversations WHERE {where}) "
            f"GROUP BY GROUPING SETS ({sets}) ORDER BY ALL",
            values,
        )
        for row in rows:
            for place, name in enumerate(plain):
                alone = ((1 << len(plain)) - 1) ^ (1 << (len(plain) - 1 - place))
                if row["bits"] == alone and row[name] is not None:
                    found[name].append([row[name], row["n"]])
    if "flag" in found:
        rows = index.ask(
            "SELECT flag, count(*) AS n FROM (SELECT unnest(flags) AS flag FROM conversations "
            f"WHERE {where}) GROUP BY flag ORDER BY flag",
            values,
        )
        found["flag"] = [[row["flag"], row["n"]] for row in rows]
    return found


def without(asked: Asked, name: str) -> Asked:
    """Return the parameters of a request without one filter."""
    from multidict import MultiDict

    return MultiDict((key, value) for key, value in asked.items() if key != name)


def conditions(index: Index, asked: Asked) -> tuple[str, list[Any]]:
    """Return the SQL condition for all filters of a request, with its parameters."""
    parts = ["true"]
    values: list[Any] = []
    for name in CHOICES:
        if chosen := asked.getall(name, []):
            parts.append(f"{name} IN ({', '.join('?' * len(chosen))})")
            values += chosen
    if chosen := asked.getall("temperature", []):
        parts.append(f"temperature IN ({', '.join('?' * len(chosen))})")
        values += [_number("temperature", text) for text in chosen]
    if searched := terms(_last(asked, "q")):
        parts.append(f"n IN (SELECT n FROM {_having(index, searched)})")
    for part, given in (_result(asked), _flag(asked), _reward(index, asked), _versus(index, asked)):
        parts += part
        values += given
    if clause := _last(asked, "where").strip():
        parts.append(f"n IN ({free(index, clause)})")
    return " AND ".join(f"({part})" for part in parts), values


def _having(index: Index, searched: Sequence[str]) -> str:
    """Return the table of the rows that contain all of these words and phrases."""
    if known := index.known(searched):
        return known
    parts, values = [], []
    for term in searched:
        by_id = len(term) >= ID_FROM and _begins_id(index, term)
        parts.append(
            "(contains(text, lower(?))" + " OR starts_with(conversation_id, ?)" * by_id + ")"
        )
        values += [term] * (1 + by_id)
    return index.having(searched, " AND ".join(parts), values)


def _begins_id(index: Index, term: str) -> bool:
    """Return True if an id begins with this word. For most words DuckDB's block statistics rule it
    out; reading all ids in the search would take a tenth longer."""
    sql = "SELECT 1 FROM conversations WHERE starts_with(conversation_id, ?) LIMIT 1"
    return bool(index.ask(sql, [term]))


def terms(text: str) -> list[str]:
    """Return the words and "quoted phrases" of a search, all of which must match."""
    return [phrase or word.replace('"', "") for phrase, word in TERM.findall(text)]


def free(index: Index, clause: str) -> str:
    """Return the query for the rows of a free SQL condition, checked as in `convbench query`.

    Raises QueryError unless it is a single condition that only reads.
    """
    source = TEXTED if re.search(r"\btext\b", clause, re.IGNORECASE) else "conversations"
    sql = f"SELECT n FROM {source} WHERE (\n{clause}\n)"
    tree = index.guard(sql)
    nodes = [one.get("node", {}) for one in (tree or {}).get("statements", [])]
    plain = len(nodes) == 1 and nodes[0].get("type") == "SELECT_NODE"
    if not plain or nodes[0].get("modifiers") or nodes[0].get("group_expressions"):
        raise QueryError("expected one condition, as after WHERE, e.g. words > 200 AND correct")
    if len(clause) > LONGEST or not guard.small(tree):
        raise QueryError(
            f"expected a condition of at most {LONGEST:,} signs, without functions that make long "
            "values (repeat, lpad, …); for those: convbench query"
        )
    try:
        index.ask("EXPLAIN " + sql)  # resolves the names without running it
    except QueryError as error:
        if "Referenced column" not in str(error):
            raise
        said = str(error).rstrip("!.")
        raise QueryError(f"{said}; there is: {', '.join(index.columns)}") from None
    return sql


def _result(asked: Asked) -> tuple[list[str], list[Any]]:
    chosen = asked.getall("result", [])
    unknown = [name for name in chosen if name not in RESULTS]
    if unknown:
        raise QueryError(f"result: found {unknown[0]!r}; expected one of {', '.join(RESULTS)}")
    return ([" OR ".join(f"({RESULTS[name].format('')})" for name in chosen)] if chosen else []), []


def _flag(asked: Asked) -> tuple[list[str], list[Any]]:
    chosen = asked.getall("flag", [])
    if not chosen:
        return [], []
    if "any" in chosen:
        return ["len(flags) > 0"], []
    return ["list_has_any(flags, ?::VARCHAR[])"], [list(chosen)]


def _reward(index: Index, asked: Asked) -> tuple[list[str], list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    column = reward_column(index, asked)
    for name, sign in (("min", ">="), ("max", "<=")):
        if text := _last(asked, name):
            if column is None:
                raise QueryError("a reward range needs a judge; found no verdicts in these runs")
            parts.append(f"{column} {sign} ?")
            values.append(_number(name, text))
    if column is not None and _last(asked, "judge"):
        parts.append(f"({column} IS NOT NULL OR {column.replace('reward', 'failed')})")
    return parts, values


def reward_column(index: Index, asked: Asked) -> str | None:
    """Return the reward column of the requested judge, else of the first; None without judges.
    Raises QueryError for an unknown judge."""
    judge = _last(asked, "judge")
    if judge and judge not in index.judges:
        known = ", ".join(index.judges) or "no judge"
        raise QueryError(f"judge: found {judge!r}; expected one of {known}")
    if not index.judges:
        return None
    return f"reward_{index.judges.index(judge) if judge else 0}"


def _order(index: Index, asked: Asked) -> str:
    name = _last(asked, "sort") or "n"
    if name not in SORTS:
        raise QueryError(f"sort: found {name!r}; expected one of {', '.join(SORTS)}")
    column = {"result": RESULT, "reward": reward_column(index, asked) or "n"}.get(name, name)
    return f"{column} {'DESC' if _last(asked, 'desc') else 'ASC'} NULLS LAST, n"


def _last(asked: Asked, name: str) -> str:
    found: Sequence[str] = asked.getall(name, [])
    return found[-1] if found else ""


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise QueryError(f"{name}: found {text!r}; expected a number")
    return value


def _whole(asked: Asked, name: str, default: int) -> int:
    text = _last(asked, name)
    if text and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise QueryError(f"{name}: found {text!r}; expected a whole number from 0")
    return int(text) if text else default
