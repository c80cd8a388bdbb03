"""What the list is asked for, as SQL over the index."""
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
    "correct": "correct",
    "wrong": "correct = false AND answer IS NOT NULL",
    "unparsed": "correct = false AND answer IS NULL",
    "failed": "failure IS NOT NULL",
    "ungraded": "failure IS NULL AND correct IS NULL",
}
"""What became of a conversation; each is in exactly one of these."""
RESULT = "CASE " + " ".join(f"WHEN {sql} THEN '{name}'" for name, sql in RESULTS.items()) + " END"

CHOICES = ("task", "split", "policy", "protocol", "mode", "run")
"""Columns of text that are filtered by one or several values."""
SORTS = (
    "n", "question", "policy", "temperature", "answer", "result", "n_turns", "words", "cost_usd",
    "reward",
)  # fmt: skip
PAGE, MOST = 50, 500
LONGEST = 2000
"""Characters of a free condition."""
ID_FROM = 6
"""Characters from which on a word may be the start of a conversation_id."""
TERM = re.compile(r'"([^"]+)"|(\S+)')
SHOWN = f"""
n, conversation_id, run_no, task, split, policy, sample, temperature, answer, {RESULT} AS result,
n_turns, words, flags, cost_usd, q, left(question, 240) AS question, protocol, mode
"""


def listing(index: Index, asked: Asked) -> dict[str, Any]:
    """Return `{total, offset, rows}` for the filters, the order and the page asked for.

    Raises QueryError naming what cannot be understood.
    """
    where, values = conditions(index, asked)
    offset, limit = _whole(asked, "offset", 0), min(_whole(asked, "limit", PAGE), MOST)
    order = _order(index, asked)
    found = index.order(f"SELECT n FROM conversations WHERE {where} ORDER BY {order}", values)
    page = found[offset : offset + limit].to_pylist()
    marks = ", ".join("?" * len(page)) or "NULL"
    shown = index.ask(
        f"SELECT {SHOWN}{rewards(index)} FROM conversations WHERE n IN ({marks})", page
    )
    by_number = {row["n"]: tidy(row) for row in shown}
    return {"total": len(found), "offset": offset, "rows": [by_number[n] for n in page]}


def rewards(index: Index) -> str:
    """Return the columns of all judges' rewards, as two lists."""
    each = range(len(index.judges))
    given = ", ".join(f"reward_{k}" for k in each)
    lost = ", ".join(f"coalesce(failed_{k}, false)" for k in each)
    return f", [{given}]::DOUBLE[] AS rewards, [{lost}]::BOOLEAN[] AS unscored"


def tidy(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as JSON can hold it: no NaN, no infinity."""
    return {name: _finite(value) for name, value in row.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def conditions(index: Index, asked: Asked) -> tuple[str, list[Any]]:
    """Return a condition and its parameters."""
    parts = ["true"]
    values: list[Any] = []
    for name in CHOICES:
        if chosen := asked.getall(name, []):
            parts.append(f"{name} IN ({', '.join('?' * len(chosen))})")
            values += chosen
    if chosen := asked.getall("temperature", []):
        parts.append(f"temperature IN ({', '.join('?' * len(chosen))})")
        values += [_number("temperature", text) for text in chosen]
    for term in terms(_last(asked, "q")):
        by_id = len(term) >= ID_FROM
        parts.append("contains(text, lower(?))" + " OR starts_with(conversation_id, ?)" * by_id)
        values += [term] * (1 + by_id)
    for part, given in (_result(asked), _flag(asked), _reward(index, asked)):
        parts += part
        values += given
    if clause := _last(asked, "where").strip():
        parts.append(f"n IN ({free(index, clause)})")
    return " AND ".join(f"({part})" for part in parts), values


def terms(text: str) -> list[str]:
    """Split a search into words and "quoted phrases"; all of them must be found."""
    return [phrase or word.replace('"', "") for phrase, word in TERM.findall(text)]


def free(index: Index, clause: str) -> str:
    """Return a query for the rows of a free condition, guarded as `query` guards.

    Raises QueryError where it is not one condition that reads.
    """
    sql = f"SELECT n FROM conversations WHERE (\n{clause}\n)"
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
        index.ask("EXPLAIN " + sql)  # binds the names, and runs nothing
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
    return ([" OR ".join(f"({RESULTS[name]})" for name in chosen)] if chosen else []), []


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
    """Return the column of the judge asked for, else of the first; None where there is none."""
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
