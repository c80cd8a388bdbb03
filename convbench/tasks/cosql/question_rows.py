"""Which rows of CoSQL are questions that stand alone, and which dialogue each belongs to.

Detect right queries that take the wrong end: the question asks for the least and the query takes
the most, or the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from convbench.tasks.cosql.queries import DatabaseSchema

GOAL, FIRST = -1, 0
"""`turn_idx` of a dialogue's overall goal and of its first turn."""


@dataclass(frozen=True)
class StandaloneQuestion:
    """A question that can be understood without the turns before it."""

    key: str
    """Unique id."""
    dialogue: str
    """Id of the dialogue it was asked in."""
    text: str
    """What the user asked, as one line."""
    row: Mapping[str, Any]
    """The row it comes from."""


def standalone_questions(rows: Iterable[Mapping[str, Any]]) -> Iterator[StandaloneQuestion | str]:
    """Yield goals, then first turns, each distinct question once; for any other row a reason.

    Later turns depend on earlier ones. A goal often repeats its dialogue's first turn.
    """
    by_turn: dict[int, list[StandaloneQuestion]] = {GOAL: [], FIRST: []}
    for dialogue, row in _number_dialogues(rows):
        turn = row["turn_idx"]
        if turn in by_turn:
            by_turn[turn].append(_read_question(row, dialogue))
        else:
            yield "a later turn, which does not stand alone"
    seen: set[str] = set()
    for standalone in by_turn[GOAL] + by_turn[FIRST]:
        question = standalone.text.casefold()
        yield "the same question as another row" if question in seen else standalone
        seen.add(question)


def _number_dialogues(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each row with its dialogue's id.

    The rows carry no dialogue id. A dialogue's rows follow each other, with one first turn and at
    most one goal (after or before the turns), so that a second one begins the next dialogue.
    """
    number = 0
    database: str | None = None
    seen: set[int] = set()
    for row in rows:
        turn = row["turn_idx"]
        if row["db_id"] != database or turn in seen:
            number, database, seen = number + 1, row["db_id"], set()
        seen.add(turn)
        yield f"{database}-{number}", row


def _read_question(row: Mapping[str, Any], dialogue: str) -> StandaloneQuestion:
    """Return the question of a goal or first turn."""
    kind = "goal" if row["turn_idx"] == GOAL else "first"
    utterances = row["utterances"]
    text = " ".join((utterances[-1] if utterances else "").split())
    return StandaloneQuestion(f"{dialogue}-{kind}", dialogue, text, row)


_AMOUNTS = (
    re.compile(r"(?<!at )\b(?:most|highest|largest|maximum|greatest|biggest)\b(?! rank)", re.I),
    re.compile(r"(?<!at )\b(?:least|lowest|smallest|minimum|fewest)\b(?! rank)", re.I),
)
_AGES = (re.compile(r"\boldest\b", re.IGNORECASE), re.compile(r"\byoungest\b", re.IGNORECASE))
"""Words of the one end and of the other. Others ("first", "best") depend on what a column means."""


def takes_wrong_end(text: str, query: exp.Expression) -> bool:
    """Return whether a question asks for one end only and its query takes only the other.

    A query's ends are found in `ORDER BY` with a limit, `max` and `min`.
    """
    ends = list(_order_ends(query)) or list(_aggregate_ends(query))
    of_ages = all(column.name.lower() == "age" for column, _ in ends)
    most, least = (
        bool(amount.search(text) or (of_ages and age.search(text)))
        for amount, age in zip(_AMOUNTS, _AGES, strict=True)
    )
    return most != least and {end for _, end in ends} == {not most}


def _order_ends(query: exp.Expression) -> Iterator[tuple[exp.Expression, bool]]:
    """Yield what is ordered by under a limit, and whether the largest comes first."""
    for select in query.find_all(exp.Select):
        order = select.args.get("order")
        if order is not None and select.args.get("limit"):
            yield order.expressions[0].this, bool(order.expressions[0].args.get("desc"))


def _aggregate_ends(query: exp.Expression) -> Iterator[tuple[exp.Expression, bool]]:
    """Yield what the largest or smallest is taken of, and whether it is the largest."""
    for end in query.find_all(exp.Max, exp.Min):
        yield end.this, isinstance(end, exp.Max)


# The first is the paper's one example, the others are ours.
_SEVERAL = "Consider relationships between multiple tables."
_NESTED = "Consider combining the results of several queries."
_GROUPED = "Consider how rows are grouped and summarized."
_ORDERED = "Consider the order of rows and how many are asked for."
_FILTERED = "Consider which rows meet the conditions."
_COLUMNS_HINT = "Consider which columns answer the question."


def word_question(
    text: str, options: Sequence[exp.Expression], tables: DatabaseSchema
) -> dict[str, Any]:
    """Return the question's text and its parts: utterance, hint, tables, foreign_keys.

    Tables and hint depend on what all options have in common, so that they point to none of them.
    """
    used = sorted(
        {tables.table_numbers[t.name.lower()] for o in options for t in o.find_all(exp.Table)}
    )
    names = [tables.names[number] for number in used]
    links = [
        f"{tables.column_label(child)} = {tables.column_label(parent)}"
        for child, parent in tables.foreign
        if tables.columns[child].table in used and tables.columns[parent].table in used
    ]
    hint = _pick_hint(options)
    keys = f" The optional foreign keys are: {links}." if links else ""
    prompt = (
        "Your task is to generate SQL query based on the following question and information "
        f"provided. {_close_sentence(text)} Hint: {hint} The relevant schema tables are: "
        f"{names}.{keys}"
    )
    return {
        "question": prompt,
        "utterance": text,
        "hint": hint,
        "tables": names,
        "foreign_keys": links,
    }


def _pick_hint(options: Sequence[exp.Expression]) -> str:
    """Return the first hint that fits every option."""
    rules = (
        (_SEVERAL, lambda o: len({t.name for t in o.find_all(exp.Table)}) > 1),
        (_NESTED, lambda o: len(list(o.find_all(exp.Select))) > 1),
        (_GROUPED, lambda o: o.find(exp.AggFunc, exp.Group) is not None),
        (_ORDERED, lambda o: o.find(exp.Order) is not None),
        (_FILTERED, lambda o: o.find(exp.Where) is not None),
    )
    return next((hint for hint, fits in rules if all(map(fits, options))), _COLUMNS_HINT)


def _close_sentence(text: str) -> str:
    """Return the text with a full stop if it has no mark at its end."""
    return text if text.endswith((".", "?", "!")) else f"{text}."
