"""The question as the paper words it (Mukherjee et al., NeurIPS 2025, section E.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from convbench.tasks.cosql.queries import DatabaseSchema

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
