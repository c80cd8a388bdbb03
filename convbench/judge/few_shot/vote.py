"""From the answers of all views to two attempts.

Akyürek et al. (test-time training on ARC), as Zweiger et al. 2025 (SEAL) use it: a vote within each
kind of view, then one across them. What it comes to does not depend on the order of the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from convbench.judge.few_shot.views import PLAIN
from convbench.tasks.arc_agi.grids import Grid

T = TypeVar("T", bound=tuple[Any, ...])
FIRST = 3
"""Candidates of one kind of view."""
ATTEMPTS = 2


def vote(answers: Mapping[str, Sequence[Grid]], attempts: int = ATTEMPTS) -> tuple[Grid, ...]:
    """Return the attempts, best first, from answers by kind of view (turned back already).

    Every kind names up to three candidates; the grids that most kinds name win. Ties go to what the
    plain views named, then to what more single views answered, then to the smaller grid in the
    order of its cells.
    """
    named = {kind: set(candidates(found)) for kind, found in answers.items() if found}
    kinds = Counter(grid for grids in named.values() for grid in grids)
    single = Counter(grid for found in answers.values() for grid in found)
    plain = named.get(PLAIN, set())
    order = sorted(kinds, key=lambda g: (-kinds[g], g not in plain, -single[g], g))
    return tuple(order[:attempts])


def candidates(answers: Sequence[Grid]) -> list[Grid]:
    """Return up to three of one kind's answers: the commonest, and where fewer differ, the grids
    that the majority of rows and the majority of columns make."""
    found = _commonest(answers)[:FIRST]
    for made in (by_row(answers), by_column(answers)):
        if len(found) < FIRST and made not in found:
            found.append(made)
    return found


def by_row(answers: Sequence[Grid]) -> Grid:
    """Return the grid whose every row is the commonest in its place, among the answers of the
    commonest size."""
    alike = _alike(answers)
    return tuple(_commonest(rows)[0] for rows in zip(*alike, strict=True))


def by_column(answers: Sequence[Grid]) -> Grid:
    """Return the same by columns."""
    turned = [tuple(zip(*grid, strict=True)) for grid in _alike(answers)]
    columns = [_commonest(found)[0] for found in zip(*turned, strict=True)]
    return tuple(zip(*columns, strict=True))


def _alike(answers: Sequence[Grid]) -> list[Grid]:
    size = _commonest([(len(grid), len(grid[0])) for grid in answers])[0]
    return [grid for grid in answers if (len(grid), len(grid[0])) == size]


def _commonest(values: Iterable[T]) -> list[T]:
    counts = Counter(values)
    return sorted(counts, key=lambda value: (-counts[value], value))
