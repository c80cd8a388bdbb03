"""Conversations with known gold means, labelled by a draw: what intervals are tried on."""

from __future__ import annotations

import random
from collections.abc import Sequence

from convbench.stats.draw import (
    draw_probabilities,
    draw_systematic,
    expected_distances,
    sampling_sizes,
)
from convbench.stats.ppi import ScoredUnit
from convbench.util.words import DrawBy

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
    rng: random.Random, found: Sequence[Talk], labels: int, by: DrawBy
) -> list[ScoredUnit]:
    """Return the conversations with labels on those that a draw takes."""
    scores = [judge for _, judge, _ in found]
    apart = None
    if by == "optimal":  # what an earlier draw of other conversations told
        before = rng.sample(list(found), 40)
        apart = expected_distances(scores, [(judge, gold - judge) for _, judge, gold in before])
    chances = draw_probabilities(sampling_sizes(by, scores, apart), labels)
    along = scores if by == "stratified" else None
    taken = set(draw_systematic(chances, rng, along))
    return [
        ScoredUnit(group, judge, gold if i in taken else None, 1 / chances[i])
        for i, (group, judge, gold) in enumerate(found)
    ]
