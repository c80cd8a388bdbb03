"""CoSQL (Yu et al. 2019) as multiple choice: which query answers the question?

The form is that of Mukherjee et al. (NeurIPS 2025), section E.6. The paper does not say how the
wrong queries were made; here they are edits of the gold (see `options`), all written by one
formatter, and kept only where made databases tell all four queries apart (see `results`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from random import Random
from typing import Any

from convbench.errors import DataError
from convbench.tasks.cosql.balance import Balance
from convbench.tasks.cosql.dialogues import Asked, stand_alone
from convbench.tasks.cosql.options import candidates
from convbench.tasks.cosql.queries import BadQuery, canonical
from convbench.tasks.cosql.results import Bench
from convbench.tasks.cosql.tables import Tables
from convbench.tasks.cosql.wording import worded

__all__ = ["questions"]

_FIELDS = (
    "query",
    "utterances",
    "turn_idx",
    "db_id",
    "db_table_names",
    "db_column_names",
    "db_column_types",
    "db_primary_keys",
    "db_foreign_keys",
)


def questions(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a question, or the reason why there is none, for each row of the builder's schema.

    The group is the dialogue. Rows must come in the data's order: it alone delimits dialogues.
    Which of a question's possible wrong queries are taken depends on the questions before it,
    so that the whole set is balanced (see `balance`). Raises DataError for another schema.
    """
    balance = Balance()
    for asked in stand_alone(_checked(rows)):
        yield {"reject": asked} if isinstance(asked, str) else _question(asked, seed, balance)


def _checked(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Pass rows on that have the fields needed."""
    for row in rows:
        missing = [name for name in _FIELDS if name not in row]
        if missing:
            raise DataError(
                f"cosql: a row lacks {missing}; expected the common builder's fields {[*_FIELDS]}, "
                f"found {sorted(row)}; name a set in that layout: --set task.source.file=PATH"
            )
        yield row


def _question(asked: Asked, seed: int, balance: Balance) -> dict[str, Any]:
    """Return the question of one row, or why it has none."""
    tables = Tables.of(asked.row)
    try:
        gold = canonical(asked.row["query"], tables)
    except BadQuery as reason:
        return {"reject": str(reason)}
    rng = Random(hashlib.sha256(f"cosql:{seed}:{asked.key}".encode()).digest())
    with closing(Bench(gold, tables, key=asked.key, seed=seed)) as bench:
        sets = candidates(gold, tables, bench, rng)
    if isinstance(sets, str):
        return {"reject": sets}
    chosen = balance.choose([[query.text for query in (gold, *wrong)] for wrong in sets], rng)
    options = [gold, *sets[chosen]]
    rng.shuffle(options)
    return {
        "id": asked.key,
        "group": asked.dialogue,
        **worded(asked.text, [option.tree for option in options], tables),
        "choices": [option.text for option in options],
        "answer": next(i for i, option in enumerate(options) if option is gold),
    }
