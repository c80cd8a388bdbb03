"""Three wrong queries next to the gold, such that form alone does not tell the gold.

One-edit mutations alone would betray it: the query that all others resemble would be the gold.
So two edits a and b make a square, gold - a(gold) - b(gold) - b(a(gold)), of which each query is
one edit away from two others and two edits away from the third. Edits lengthen or shorten; sets
of all directions are offered, and `balance` chooses among them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from convbench.tasks.cosql import parts, words
from convbench.tasks.cosql.edits import Edit, edited
from convbench.tasks.cosql.queries import NODE, Query
from convbench.tasks.cosql.results import Bench, telling
from convbench.tasks.cosql.tables import Tables

_MAKERS = (
    words.columns,
    words.aggregates,
    words.operators,
    words.literals,
    words.tables_read,
    parts.distinct,
    parts.listed,
    parts.ordering,
    parts.conditions,
    parts.joins,
)

_WEIGHTS = {
    "column": 4.0, "join": 2.0, "comparison": 4.0, "literal": 3.0, "aggregate": 3.0,
    "connective": 2.0, "set operation": 3.0, "table": 3.0, "order": 2.0, "condition": 2.0,
    "list": 1.5, "count": 1.0, "distinct": 0.7, "limit": 0.7, "negation": 0.7,
    "equality": 0.3, "outer join": 0.3,
}  # fmt: skip
"""How often a kind of edit is tried. Kinds whose outcome is rare among golds are tried seldom:
where `<>` is common in wrong options and rare in golds, it tells them apart."""

_TRIES = 20
"""Pairs of edits tried for one question, in each of three directions of length."""
_CANDIDATES = 6
"""Sets of options found for one question, in each direction."""
_TELLING = 3
"""Databases that must tell all four apart."""


@dataclass(frozen=True)
class Mutant:
    """An edit that gives other results than the gold, and by how much it lengthens the query."""

    edit: Edit
    query: Query
    longer: int


def candidates(gold: Query, tables: Tables, bench: Bench, rng: Random) -> list[list[Query]] | str:
    """Return sets of three wrong queries, best explained first, or why there are none."""
    results = bench.results(gold)
    if not any(result and result.rows for result in results):
        return "the gold's result is empty on every database"
    mutants = _shuffled(list(_mutants(gold, tables, bench)), rng)
    sides = {sign: [m for m in mutants if m.longer * sign >= 0] for sign in (1, -1)}
    if min(map(len, sides.values())) < 2:
        # Its place among the lengths would tell the gold.
        return "no edits to both sides of the gold's length"
    found: dict[str, list[Query]] = {}
    for first, second in ((1, 1), (1, -1), (-1, -1)):
        pairs = itertools.islice(_pairs(sides[first], sides[second]), _TRIES)
        told = (s for a, b in pairs if (s := _square(gold, a, b, bench)))
        found |= {square[2].text: square for square in itertools.islice(told, _CANDIDATES)}
    return list(found.values()) or "no two edits that databases tell apart"


def _mutants(gold: Query, tables: Tables, bench: Bench) -> Iterator[Mutant]:
    """Yield every edit whose result differs from the gold's on some database."""
    seen = {gold.text}
    for node in gold.tree.walk():
        for kind, change in itertools.chain.from_iterable(m(node, tables) for m in _MAKERS):
            edit = Edit(kind, node.meta[NODE], change)
            query = edited(gold, [edit])
            if query is None or query.text in seen:
                continue
            seen.add(query.text)
            if telling([bench.results(gold), bench.results(query)]) >= _TELLING:
                yield Mutant(edit, query, len(query.text) - len(gold.text))


def _shuffled(mutants: list[Mutant], rng: Random) -> list[Mutant]:
    """Return mutants in a random order in which heavier kinds tend to come first."""
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        kinds[mutant.edit.kind].append(mutant)
    ranked: list[tuple[float, Mutant]] = []
    for kind, found in sorted(kinds.items()):
        rng.shuffle(found)
        # The n-th of a kind counts as n times as late: many columns do not crowd out the rest.
        ranked += [(rng.random() * n / _WEIGHTS[kind], m) for n, m in enumerate(found, start=1)]
    return [mutant for _, mutant in sorted(ranked, key=lambda pair: pair[0])]


def _pairs(first: list[Mutant], second: list[Mutant]) -> Iterator[tuple[Mutant, Mutant]]:
    """Yield pairs of two mutants, early ones first."""
    places = itertools.product(range(len(first)), range(len(second)))
    for i, j in sorted(places, key=lambda place: (sum(place), place)):
        if first[i] is not second[j]:
            yield first[i], second[j]


def _square(gold: Query, a: Mutant, b: Mutant, bench: Bench) -> list[Query] | None:
    """Return a(gold), b(gold) and b(a(gold)), None unless databases tell all four apart."""
    both = edited(gold, [a.edit, b.edit])
    if both is None or both.text in (gold.text, a.query.text, b.query.text):
        return None
    if telling([bench.results(query) for query in (gold, a.query, b.query, both)]) < _TELLING:
        return None
    other = edited(gold, [b.edit, a.edit])
    # Else one edit has overwritten part of the other: no square.
    return [a.query, b.query, both] if other is not None and other.text == both.text else None
