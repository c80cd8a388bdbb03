"""The views of one test: demonstrations left out, reordered, and all grids transformed.

Zweiger et al. 2025 (SEAL), few-shot learning, after Akyürek et al.: every leave-1-out subset of the
demonstrations, in its own and two other orders, in each of six transformations of the grids.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
    """Return all views of a test; a single demonstration is not left out."""
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
