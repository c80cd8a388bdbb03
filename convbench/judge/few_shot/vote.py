"""Vote over the answers to all views for two attempts.

Akyürek et al. (test-time training on ARC), as Zweiger et al. 2025 (SEAL) use it: a vote within each
kind of view, then one across kinds. The result does not depend on the order of the answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from convbench.judge.few_shot.views import UNCHANGED
from convbench.tasks.arc_agi.grids import Grid

T = TypeVar("T", bound=tuple[Any, ...])
FIRST = 3
"""Most candidates of one kind of view."""
ATTEMPTS = 2


def vote_attempts(
    answers: Mapping[str, Sequence[Grid]], attempts: int = ATTEMPTS
) -> tuple[Grid, ...]:
    """Return the attempts, best first, from answers by kind of view (transformed back already).

    Each kind names up to three candidates; the grids that most kinds name win. Ties go to
    candidates of the untransformed views, then to the more frequent answer, then to the smaller
    grid in lexicographic order.
    """
    named = {kind: set(kind_candidates(replies)) for kind, replies in answers.items() if replies}
    kinds = Counter(grid for grids in named.values() for grid in grids)
    single = Counter(grid for replies in answers.values() for grid in replies)
    unchanged = named.get(UNCHANGED, set())
    order = sorted(kinds, key=lambda g: (-kinds[g], g not in unchanged, -single[g], g))
    return tuple(order[:attempts])


def kind_candidates(answers: Sequence[Grid]) -> list[Grid]:
    """Return up to three candidates of one kind: the most frequent answers and, if fewer differ,
    the grids of the majority of rows and of columns."""
    grids = _by_frequency(answers)[:FIRST]
    for grid in (by_row(answers), by_column(answers)):
        if len(grids) < FIRST and grid not in grids:
            grids.append(grid)
    return grids


def by_row(answers: Sequence[Grid]) -> Grid:
    """Return the grid whose rows are each the most frequent in their position, among the answers of
    the most frequent size."""
    alike = _of_common_size(answers)
    return tuple(_by_frequency(rows)[0] for rows in zip(*alike, strict=True))


def by_column(answers: Sequence[Grid]) -> Grid:
    """Return the grid whose columns are each the most frequent in their position, likewise."""
    turned = [tuple(zip(*grid, strict=True)) for grid in _of_common_size(answers)]
    columns = [_by_frequency(column)[0] for column in zip(*turned, strict=True)]
    return tuple(zip(*columns, strict=True))


def _of_common_size(answers: Sequence[Grid]) -> list[Grid]:
    """Return the answers of the most frequent size."""
    size = _by_frequency([(len(grid), len(grid[0])) for grid in answers])[0]
    return [grid for grid in answers if (len(grid), len(grid[0])) == size]


def _by_frequency(values: Iterable[T]) -> list[T]:
    """Return the distinct values, the most frequent first, equals in their own order."""
    counts = Counter(values)
    return sorted(counts, key=lambda value: (-counts[value], value))
