"""Wrong queries: what other turns ask, over the tables, columns and values of this question.

A wrong query takes the template of another turn's right query and this question's tables, joins and
values. Its columns are drawn by how often right queries on the database name them, mostly of the
sorts that the template's own query names there: else right queries would be those that list names
and compare keys. So each option, looked at alone, is as much like a right query as the right one:
whatever can be counted in it comes from a right query. It shares as many words with the question as
the right one does, and its names have as many others.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from sqlglot import exp

from convbench.tasks.cosql.asked import Asked
from convbench.tasks.cosql.builds import (
    Build,
    Slot,
    columns,
    linked,
    literals,
    phrases,
    selects,
    sort,
)
from convbench.tasks.cosql.databases import Bench, Told
from convbench.tasks.cosql.looks import pairs
from convbench.tasks.cosql.queries import COLUMN, Column, Query
from convbench.tasks.cosql.shared import shared, words

_DONORS = 40
"""Templates tried for one question."""
_TRIES = 60
"""Choices of columns tried for one template."""
_EACH = 3
"""Most wrong queries of one template."""
_LIKELY = 8.0
"""How much likelier a column is of the sort that a template's own query names in its slot, and how
much likelier if it is linked to another SELECT's column as the own one is."""
_OWN = 0.75
"""How often a value is compared with the column that the right query compares it with."""


@dataclass(frozen=True)
class Wrong:
    """A possible wrong option."""

    donor: str
    """Key of the question, or later turn, whose template it has."""
    form: str
    """Text of that template."""
    query: Query
    told: Told
    phrases: Counter[str]
    """Counts of its words and pairs of words, with sorts in place of column names."""

    @cached_property
    def pairs(self) -> Counter[str]:
        """Return the counts of its words and pairs of words with the columns' own names."""
        return pairs(self.query.text)


def candidates(
    asked: Asked, donors: Sequence[tuple[str, Build]], bench: Bench, rng: Random
) -> list[Wrong] | str:
    """Return wrong queries that databases distinguish from the right one, or why there are none."""
    gold = bench.told(asked.gold)
    if not gold.any_row:
        return "the gold's result is empty on every database"
    if repeats(asked.gold):
        return "the gold query lists a column twice"
    found: list[Wrong] = []
    for key, build in rng.sample(list(donors), min(_DONORS, len(donors))):
        for query in itertools.islice(transplanted(build, asked, rng), _EACH):
            told = bench.told(query)
            if told.any_row and told.differs(gold):
                said = phrases(query, asked.tables)
                found.append(Wrong(key, build.form, query, told, said))
    return found


def transplanted(build: Build, asked: Asked, rng: Random) -> Iterator[Query]:
    """Yield valid queries of this template for the question that are not the right one.

    They have as many different words of the question as the right one, and as many in their names
    that are not in the question.
    """
    wanted, spare = shared(asked.words, asked.gold.text), len(asked.named - asked.words)
    values = _values(asked, rng)
    seen = {asked.gold.text}
    tried: set[tuple[int, ...]] = set()
    for _ in range(_TRIES):
        drawn = _drawn(build.slots, values, asked, rng)
        if drawn is None:
            return
        named_as = tuple(column.index for _, column in drawn)
        if named_as in tried:
            continue
        tried.add(named_as)
        named = words(" ".join(column.name for _, column in drawn)) | asked.fixed
        if len(named - asked.words) != spare:
            continue
        if len((named | build.words) & asked.words) != wanted:
            continue
        query = _written(build, values, drawn, asked)
        if query.text not in seen and shared(asked.words, query.text) == wanted:
            seen.add(query.text)
            if not repeats(query):
                yield query


def repeats(query: Query) -> bool:
    """Return whether a query lists a column twice, or compares one with itself."""
    for select in query.tree.find_all(exp.Select):
        group = select.args.get("group")
        for part in (select.expressions, group.expressions if group else ()):
            listed = [item.sql().lower() for item in part]
            if len(set(listed)) < len(listed):
                return True
    return any(node.this == node.expression for node in query.tree.find_all(exp.Binary))


def _values(asked: Asked, rng: Random) -> list[exp.Literal]:
    """Return the right query's values in a random order, texts first."""
    found = literals(asked.gold.tree)
    return sorted(rng.sample(found, len(found)), key=lambda value: not value.is_string)


def _drawn(
    slots: Sequence[Slot], values: Sequence[exp.Literal], asked: Asked, rng: Random
) -> list[tuple[str, Column]] | None:
    """Return (alias, column) for each slot, one column for one name, or None if none fits."""
    known: dict[tuple[int, str], tuple[str, Column]] = {}
    for slot in slots:
        if (slot.select, slot.name) not in known:
            taken = {column for (select, _), (_, column) in known.items() if select == slot.select}
            like = known.get(slot.like) if slot.like else None
            found = _column(slot, values, asked, (taken, like), rng)
            if found is None:
                return None
            known[slot.select, slot.name] = found
    return [known[slot.select, slot.name] for slot in slots]


def _column(
    slot: Slot,
    values: Sequence[exp.Literal],
    asked: Asked,
    before: tuple[set[Column], tuple[str, Column] | None],
    rng: Random,
) -> tuple[str, Column] | None:
    """Return a column for a slot, drawn by how often right queries name it and by its sort, or None
    if none fits.

    `before` are the columns that its SELECT names already, and the one that it is linked with in
    the template's own query.
    """
    taken, like = before
    value = values[slot.value] if slot.value is not None else None
    own = asked.beside.get((value.is_string, value.name)) if value is not None else None
    fitting = [
        (alias, column)
        for alias, column in _named(asked, slot)
        if column not in taken and (column.index == own or _fits(column, slot, value))
    ]
    if own is not None and rng.random() < _OWN:
        fitting = [(alias, c) for alias, c in fitting if c.index == own] or fitting
    weights = [_weight(column.index, slot, like and like[1].index, asked) for _, column in fitting]
    return rng.choices(fitting, weights)[0] if fitting else None


def _weight(column: int, slot: Slot, like: int | None, asked: Asked) -> float:
    """Return how likely a column is for a slot, given the column that it may be linked with."""
    alike = slot.sort == sort(column, asked.tables)
    alike_linked = like is None or linked(column, like, asked.tables)
    often = asked.popular.get(column, 0) + 0.5
    return float(often * _LIKELY ** (alike + alike_linked))


def _named(asked: Asked, slot: Slot) -> Iterator[tuple[str, Column]]:
    """Yield what a slot can name: the columns of its table, or of all that its SELECT reads."""
    for place, (alias, table) in enumerate(asked.scopes[slot.select]):
        if slot.table in (None, place):
            yield from ((alias, column) for column in asked.tables.of_table(table))


def _fits(column: Column, slot: Slot, value: exp.Literal | None) -> bool:
    """Return whether a column's type makes sense in a slot."""
    if value is not None:
        return column.kind == ("text" if value.is_string else "number")
    return not slot.kinds or column.kind in slot.kinds


def _written(
    build: Build,
    values: Sequence[exp.Literal],
    drawn: Sequence[tuple[str, Column]],
    asked: Asked,
) -> Query:
    """Return the template's query with these values and columns, over the question's tables and
    joins."""
    tree = build.query.tree.copy()
    for place, value in zip(literals(tree), values, strict=True):
        place.set("this", value.this)
    for (number, node), (alias, column) in zip(list(columns(tree)), drawn, strict=True):
        several = asked.qualified[number]
        node.set("this", exp.to_identifier(column.name))
        node.set("table", exp.to_identifier(alias) if several else None)
        node.meta[COLUMN] = column.index
    for select, own in zip(selects(tree), selects(asked.gold.tree), strict=True):
        select.set("from_", own.args["from_"].copy())
        select.set("joins", [join.copy() for join in own.args.get("joins") or ()])
    return Query(tree)
