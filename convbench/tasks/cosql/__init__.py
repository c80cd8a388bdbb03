"""CoSQL (Yu et al. 2019) as multiple choice: which query answers the question?

The form is that of Mukherjee et al. (NeurIPS 2025), section E.6. The paper does not say how the
wrong queries were made; here each has the structure of another question's or turn's right query
(`options`). All are written by one formatter, and used only if generated databases distinguish all
four (`databases`).
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from sqlglot import exp

from convbench.errors import DataError
from convbench.tasks import evening
from convbench.tasks.cosql.asked import Asked
from convbench.tasks.cosql.builds import Build, Shape, phrases
from convbench.tasks.cosql.databases import Bench
from convbench.tasks.cosql.dialogues import FIRST, GOAL, Alone, stand_alone
from convbench.tasks.cosql.drawing import choose
from convbench.tasks.cosql.extremes import at_the_wrong_end
from convbench.tasks.cosql.options import Wrong, candidates
from convbench.tasks.cosql.queries import COLUMN, BadQuery, Tables, canonical
from convbench.tasks.cosql.wording import worded
from convbench.tasks.kept import kept

__all__ = ["questions"]

FEW = "too few other questions have a build that fits, or that its own fits"
CONTRADICTS = "the gold takes the most where the question asks for the least, or the other way"
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

    The group is the dialogue. Rows must come in the data's order, which alone delimits dialogues. A
    question's wrong queries have the structure of other right queries in these rows. Raises
    DataError for another schema. Results are cached by the rows and the seed.
    """
    every = list(_checked(rows))
    made_by, packages = (sys.modules[__name__], evening), ("sqlglot", "numpy")
    yield from kept("cosql", made_by, packages, every, seed, lambda: _made(every, seed))


def _made(every: Sequence[Mapping[str, Any]], seed: int) -> Iterator[dict[str, Any]]:
    """Yield questions, or why there are none."""
    found: dict[str, Found] = {}
    for alone in stand_alone(every):
        made = alone if isinstance(alone, str) else Found.of(alone)
        if isinstance(made, str):
            yield {"reject": made}
        else:
            found[made.alone.key] = made
    sets: dict[str, list[Wrong]] = {}
    for key, wrong in _wrong(list(found.values()), _lent(every), seed):
        if isinstance(wrong, str):
            yield {"reject": wrong}
        else:
            sets[key] = wrong
    texts = {key: (found[key].alone.text, found[key].build.query.text) for key in sets}
    forms = {key: one.build.form for key, one in found.items()}
    said = {key: phrases(found[key].build.query, found[key].tables) for key in sets}
    databases = {key: str(found[key].alone.row["db_id"]) for key in sets}
    chosen = choose(sets, texts, forms, said, databases, _random("draw", seed, ""))
    for key in sets:
        drawn = chosen.get(key)
        yield {"reject": FEW} if drawn is None else _question(found[key], drawn, seed)


def _checked(rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows. Raises DataError for one that lacks a field."""
    for row in rows:
        missing = [name for name in _FIELDS if name not in row]
        if missing:
            raise DataError(
                f"cosql: a row lacks {missing}; expected the common builder's fields {[*_FIELDS]}, "
                f"found {sorted(row)}; name a set in that layout: --set task.source.file=PATH"
            )
        yield row


@dataclass(frozen=True)
class Found:
    """A question that stands alone, its schema and the template of its right query."""

    alone: Alone
    tables: Tables
    build: Build

    @classmethod
    def of(cls, alone: Alone) -> Found | str:
        """Return the question of a row, or why its right query cannot be used."""
        tables = Tables.of(alone.row)
        try:
            found = cls(alone, tables, Build.of(canonical(alone.row["query"], tables), tables))
        except BadQuery as reason:
            return str(reason)
        return CONTRADICTS if at_the_wrong_end(alone.text, found.build.query.tree) else found


def _lent(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Build]]:
    """Yield the templates of later turns' right queries, which are not questions themselves."""
    for number, row in enumerate(rows):
        if row["turn_idx"] not in (GOAL, FIRST):
            with suppress(BadQuery):
                tables = Tables.of(row)
                yield f"turn-{number}", Build.of(canonical(row["query"], tables), tables)


def _wrong(
    found: Sequence[Found], lent: Iterable[tuple[str, Build]], seed: int
) -> Iterator[tuple[str, list[Wrong] | str]]:
    """Yield for each question its possible wrong queries, or why it has none."""
    by_shape: dict[Shape, list[tuple[str, Build]]] = defaultdict(list)
    for name, build in lent:
        by_shape[build.shape].append((name, build))
    popular: dict[str, Counter[int]] = defaultdict(Counter)
    for one in found:
        by_shape[one.build.shape].append((one.alone.key, one.build))
        named = {node.meta.get(COLUMN, 0) for node in one.build.query.tree.find_all(exp.Column)}
        popular[one.alone.row["db_id"]].update(named)
    for one in found:
        key, gold = one.alone.key, one.build.query
        donors = [donor for donor in by_shape[one.build.shape] if donor[0] != key]
        asked = Asked(key, one.alone.text, one.build, one.tables, popular[one.alone.row["db_id"]])
        with closing(Bench(gold, one.tables, key=key, seed=seed)) as bench:
            yield key, candidates(asked, donors, bench, _random("wrong", seed, key))


def _question(found: Found, wrong: Sequence[Wrong], seed: int) -> dict[str, Any]:
    """Return a question with its options in a random order."""
    alone, gold = found.alone, found.build.query
    options = [gold, *(one.query for one in wrong)]
    _random("order", seed, alone.key).shuffle(options)
    return {
        "id": alone.key,
        "group": alone.dialogue,
        "database": alone.row["db_id"],
        **worded(alone.text, [option.tree for option in options], found.tables),
        "choices": [option.text for option in options],
        "answer": next(i for i, option in enumerate(options) if option is gold),
        "_split": alone.row.get("_split"),
    }


def _random(what: str, seed: int, key: str) -> Random:
    """Return a generator that depends on the seed and the question's id only."""
    return Random(hashlib.sha256(f"cosql:{what}:{seed}:{key}".encode()).digest())
