"""The views of one test (demonstrations left out, reordered, grids transformed), and the vote over
their answers.

Zweiger et al. 2025 (SEAL), few-shot learning, after Akyürek et al.: every leave-1-out subset of
the demonstrations, in its own and two other orders, in each of six transformations of the grids.

Vote over the answers to all views for two attempts.

Akyürek et al. (test-time training on ARC), as Zweiger et al. 2025 (SEAL) use it: a vote within
each kind of view, then one across kinds. The result does not depend on the order of the answers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from convbench.tasks.arc_agi.edit import BY_NAME, map_grids, shuffle_shown
from convbench.tasks.arc_agi.grids import Grid, Pair, Puzzle

UNCHANGED = "as it is"
TURNED: Final = ("transpose", "flip-rows", "flip-columns", "rotate-90", "rotate-180")
"""Tools with an inverse, by which an answer is transformed back."""
KINDS: Final = (UNCHANGED, *TURNED)
ORDERS = 2
"""Number of random orders of the demonstrations, in addition to their own."""


@dataclass(frozen=True, slots=True)
class View:
    """One prompt for a test. The test pair's output is unknown, so it repeats the input."""

    kind: str
    puzzle: Puzzle

    def turn_back(self, answer: Grid) -> Grid:
        """Return an answer to this view transformed back to the test itself."""
        return answer if self.kind == UNCHANGED else BY_NAME[self.kind].undo(answer)


def make_views(shown: Sequence[Pair], test: Grid, seed: int) -> list[View]:
    """Return all views of a test: for each demonstration left out, three orders of the others
    (their own and two random ones by `seed`), each in six transformations of the grids.

    A single demonstration is not left out. Views may be equal. Empty without demonstrations.
    """
    stream = random.Random(f"few-shot views {seed}")
    query = Pair(test, test)
    subsets = [
        tuple(pair for at, pair in enumerate(shown) if at != away) for away in range(len(shown))
    ]
    if len(shown) == 1:
        subsets = [tuple(shown)]
    all_views = []
    for subset in subsets:
        own = Puzzle(subset, query)
        orders = [own, *(shuffle_shown(own, stream) for _ in range(ORDERS))]
        for puzzle in orders:
            all_views += [View(kind, _turn_puzzle(puzzle, kind)) for kind in KINDS]
    return all_views


def _turn_puzzle(puzzle: Puzzle, kind: str) -> Puzzle:
    return puzzle if kind == UNCHANGED else map_grids(puzzle, BY_NAME[kind].change)


T = TypeVar("T", bound=tuple[Any, ...])
FIRST = 3
"""Most candidates of one kind of view."""
ATTEMPTS = 2


def vote_attempts(
    answers: Mapping[str, Sequence[Grid]], attempts: int = ATTEMPTS
) -> tuple[Grid, ...]:
    """Return at most `attempts` grids, best first, from answers by kind of view (transformed back
    already); empty without answers.

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
    """Return up to three different candidates of one kind, best first: the most frequent answers
    and, if fewer differ, the grids by majority of rows and of columns.

    Raise IndexError without answers.
    """
    grids = _by_frequency(answers)[:FIRST]
    for grid in (by_row(answers), by_column(answers)):
        if len(grids) < FIRST and grid not in grids:
            grids.append(grid)
    return grids


def by_row(answers: Sequence[Grid]) -> Grid:
    """Return the grid whose rows are each the most frequent in their position, among the answers of
    the most frequent size; of equally frequent ones the smaller counts.

    Raise IndexError without answers.
    """
    alike = _of_common_size(answers)
    return tuple(_by_frequency(rows)[0] for rows in zip(*alike, strict=True))


def by_column(answers: Sequence[Grid]) -> Grid:
    """Return the grid whose columns are each the most frequent in their position, among the answers
    of the most frequent size; of equally frequent ones the smaller counts.

    Raise IndexError without answers.
    """
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
