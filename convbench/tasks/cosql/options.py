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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from sqlglot import exp

from convbench.tasks.cosql.databases import QueryBench, QueryResults
from convbench.tasks.cosql.queries import COLUMN, Column, DatabaseSchema, Query, scope_tables
from convbench.tasks.cosql.query_templates import (
    ColumnSlot,
    QueryTemplate,
    are_linked,
    column_sort,
    compared_value,
    find_literals,
    find_selects,
    named_columns,
    query_phrases,
)
from convbench.tasks.cosql.surface_features import count_shared, token_pairs, word_set


@dataclass(frozen=True, eq=False)
class GoldQuestion:
    """A question with its right query."""

    key: str
    text: str
    template: QueryTemplate
    tables: DatabaseSchema
    popular: Mapping[int, int]
    """How often right queries on the database name each column."""

    @property
    def gold_query(self) -> Query:
        """Return the right query."""
        return self.template.query

    @cached_property
    def words(self) -> frozenset[str]:
        """Return the question's words."""
        return frozenset(word_set(self.text))

    @cached_property
    def scopes(self) -> list[list[tuple[str, int]]]:
        """Return the (alias, table) pairs that each SELECT reads."""
        return [list(scope_tables(s, self.tables)) for s in find_selects(self.gold_query.tree)]

    @cached_property
    def uses_alias(self) -> list[bool]:
        """Return for each SELECT whether its columns are written with their table's alias."""
        flags = [len(tables) > 1 for tables in self.scopes]
        for number, node in named_columns(self.gold_query.tree):
            flags[number] = bool(node.table)
        return flags

    @cached_property
    def query_words(self) -> frozenset[str]:
        """Return the words of the right query's names, tables, joins and values."""
        names = (node.name for _, node in named_columns(self.gold_query.tree))
        return self.shared_words | word_set(" ".join(names))

    @cached_property
    def compared_columns(self) -> dict[tuple[bool, str], int]:
        """Return the column that the right query compares with each value, by (is text, value)."""
        pairs = (
            (compared_value(node), node.meta.get(COLUMN))
            for _, node in named_columns(self.gold_query.tree)
        )
        return {(v.is_string, v.name): column for v, column in pairs if v and column is not None}

    @cached_property
    def shared_words(self) -> frozenset[str]:
        """Return the words that all options have: of tables, joins and values."""
        parts = [
            part.sql()
            for select in find_selects(self.gold_query.tree)
            for part in _table_sources(select)
        ]
        return frozenset(
            word_set(" ".join((*parts, *(v.name for v in find_literals(self.gold_query.tree)))))
        )


def _table_sources(select: exp.Expression) -> list[exp.Expression]:
    return [select.args["from_"], *(select.args.get("joins") or ())]


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
class WrongOption:
    """A possible wrong option."""

    donor: str
    """Key of the question, or later turn, whose template it has."""
    form: str
    """Text of that template."""
    query: Query
    results: QueryResults
    phrases: Counter[str]
    """Counts of its words and pairs of words, with sorts in place of column names."""

    @cached_property
    def token_pairs(self) -> Counter[str]:
        """Return the counts of its words and pairs of words with the columns' own names."""
        return token_pairs(self.query.text)


def wrong_options(
    question: GoldQuestion,
    donors: Sequence[tuple[str, QueryTemplate]],
    bench: QueryBench,
    rng: Random,
) -> list[WrongOption] | str:
    """Return wrong queries that databases distinguish from the right one, or why there are none."""
    gold = bench.run_query(question.gold_query)
    if not gold.any_row:
        return "the gold's result is empty on every database"
    if repeats_column(question.gold_query):
        return "the gold query lists a column twice"
    options: list[WrongOption] = []
    for key, build in rng.sample(list(donors), min(_DONORS, len(donors))):
        for query in itertools.islice(template_queries(build, question, rng), _EACH):
            results = bench.run_query(query)
            if results.any_row and results.differs(gold):
                option_phrases = query_phrases(query, question.tables)
                options.append(WrongOption(key, build.form, query, results, option_phrases))
    return options


def template_queries(build: QueryTemplate, question: GoldQuestion, rng: Random) -> Iterator[Query]:
    """Yield valid queries of this template for the question that are not the right one.

    They have as many different words of the question as the right one, and as many in their names
    that are not in the question.
    """
    shared_count, spare = (
        count_shared(question.words, question.gold_query.text),
        len(question.query_words - question.words),
    )
    values = _shuffled_values(question, rng)
    seen = {question.gold_query.text}
    tried: set[tuple[int, ...]] = set()
    for _ in range(_TRIES):
        drawn = _draw_columns(build.slots, values, question, rng)
        if drawn is None:
            return
        named_as = tuple(column.index for _, column in drawn)
        if named_as in tried:
            continue
        tried.add(named_as)
        named = word_set(" ".join(column.name for _, column in drawn)) | question.shared_words
        if len(named - question.words) != spare:
            continue
        if len((named | build.words) & question.words) != shared_count:
            continue
        query = _write_query(build, values, drawn, question)
        if query.text not in seen and count_shared(question.words, query.text) == shared_count:
            seen.add(query.text)
            if not repeats_column(query):
                yield query


def repeats_column(query: Query) -> bool:
    """Return whether a query lists a column twice, or compares one with itself."""
    for select in query.tree.find_all(exp.Select):
        group = select.args.get("group")
        for part in (select.expressions, group.expressions if group else ()):
            listed = [item.sql().lower() for item in part]
            if len(set(listed)) < len(listed):
                return True
    return any(node.this == node.expression for node in query.tree.find_all(exp.Binary))


def _shuffled_values(question: GoldQuestion, rng: Random) -> list[exp.Literal]:
    """Return the right query's values in a random order, texts first."""
    values = find_literals(question.gold_query.tree)
    return sorted(rng.sample(values, len(values)), key=lambda value: not value.is_string)


def _draw_columns(
    slots: Sequence[ColumnSlot], values: Sequence[exp.Literal], question: GoldQuestion, rng: Random
) -> list[tuple[str, Column]] | None:
    """Return (alias, column) for each slot, one column for one name, or None if none fits."""
    known: dict[tuple[int, str], tuple[str, Column]] = {}
    for slot in slots:
        if (slot.select, slot.name) not in known:
            taken = {column for (select, _), (_, column) in known.items() if select == slot.select}
            like = known.get(slot.like) if slot.like else None
            choice = _draw_column(slot, values, question, (taken, like), rng)
            if choice is None:
                return None
            known[slot.select, slot.name] = choice
    return [known[slot.select, slot.name] for slot in slots]


def _draw_column(
    slot: ColumnSlot,
    values: Sequence[exp.Literal],
    question: GoldQuestion,
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
    own = (
        question.compared_columns.get((value.is_string, value.name)) if value is not None else None
    )
    fitting = [
        (alias, column)
        for alias, column in _possible_columns(question, slot)
        if column not in taken and (column.index == own or _fits_slot(column, slot, value))
    ]
    if own is not None and rng.random() < _OWN:
        fitting = [(alias, c) for alias, c in fitting if c.index == own] or fitting
    weights = [
        _column_weight(column.index, slot, like and like[1].index, question)
        for _, column in fitting
    ]
    return rng.choices(fitting, weights)[0] if fitting else None


def _column_weight(
    column: int, slot: ColumnSlot, like: int | None, question: GoldQuestion
) -> float:
    """Return how likely a column is for a slot, given the column that it may be linked with."""
    alike = slot.sort == column_sort(column, question.tables)
    alike_linked = like is None or are_linked(column, like, question.tables)
    often = question.popular.get(column, 0) + 0.5
    return float(often * _LIKELY ** (alike + alike_linked))


def _possible_columns(question: GoldQuestion, slot: ColumnSlot) -> Iterator[tuple[str, Column]]:
    """Yield what a slot can name: the columns of its table, or of all that its SELECT reads."""
    for position, (alias, table) in enumerate(question.scopes[slot.select]):
        if slot.table in (None, position):
            yield from ((alias, column) for column in question.tables.table_columns(table))


def _fits_slot(column: Column, slot: ColumnSlot, value: exp.Literal | None) -> bool:
    """Return whether a column's type makes sense in a slot."""
    if value is not None:
        return column.kind == ("text" if value.is_string else "number")
    return not slot.kinds or column.kind in slot.kinds


def _write_query(
    build: QueryTemplate,
    values: Sequence[exp.Literal],
    drawn: Sequence[tuple[str, Column]],
    question: GoldQuestion,
) -> Query:
    """Return the template's query with these values and columns, over the question's tables and
    joins."""
    tree = build.query.tree.copy()
    for literal, value in zip(find_literals(tree), values, strict=True):
        literal.set("this", value.this)
    for (number, node), (alias, column) in zip(list(named_columns(tree)), drawn, strict=True):
        several = question.uses_alias[number]
        node.set("this", exp.to_identifier(column.name))
        node.set("table", exp.to_identifier(alias) if several else None)
        node.meta[COLUMN] = column.index
    for select, own in zip(find_selects(tree), find_selects(question.gold_query.tree), strict=True):
        select.set("from_", own.args["from_"].copy())
        select.set("joins", [join.copy() for join in own.args.get("joins") or ()])
    return Query(tree)
