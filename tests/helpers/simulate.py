"""Conversations with known gold means, labelled by a draw: what intervals are tried on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from convbench.stats.ppi import ScoredUnit

Talk = tuple[str, float, float]
"""Group, judge's score, gold score; gold is 0 in the mean, the judge's bias is what is asked."""


def talks(
    rng: random.Random, groups: int, each: int, *, bias: float = 0.5, shared: Sequence[float] = ()
) -> list[Talk]:
    """Return conversations whose gold scores correlate by 1/2 within a group, the judge's with
    them by about 3/4, less so where it pays much."""
    found = []
    for g in range(groups):
        level = shared[g] if shared else rng.gauss(0, 0.7)
        for _ in range(each):
            gold = level + rng.gauss(0, 0.7)
            found.append((str(g), 0.7 * gold + rng.gauss(0, 0.6) + bias, gold))
    return found


def labelled(
    rng: random.Random, found: Sequence[Talk], labels: int, *, uneven: bool = False
) -> list[ScoredUnit]:
    """Return the conversations with labels on those that a draw takes; an uneven one takes better
    scores up to three times as often."""
    ranks = {
        row: rank for rank, row in enumerate(sorted(range(len(found)), key=lambda i: found[i][1]))
    }
    sizes = [0.5 + ranks[i] / len(found) if uneven else 1.0 for i in range(len(found))]
    chances = [labels * size / sum(sizes) for size in sizes]
    taken = _systematic(rng, chances)
    return [
        ScoredUnit(group, judge, gold if i in taken else None, 1 / chances[i])
        for i, (group, judge, gold) in enumerate(found)
    ]


def _systematic(rng: random.Random, chances: Sequence[float]) -> set[int]:
    """Return a sample in which each index has its chance: a comb of distance 1 with a random start
    over the cumulated chances, in random order (Madow 1949)."""
    order = rng.sample(range(len(chances)), len(chances))
    taken, reached, start = set(), 0.0, rng.random()
    for i in order:
        before, reached = reached, reached + chances[i]
        if math.floor(reached - start + 1e-9) > math.floor(before - start + 1e-9):
            taken.add(i)
    return taken
