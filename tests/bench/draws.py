"""What drawing the next labels by need saves over drawing them at random.

40 labels are drawn at random, then 60 more: at random, or `optimal` by what the 40 told. In one
world people are far from the judge on a fifth of the conversations, those it pays most (a
loophole); in the other they are as far everywhere, and need must cost next to nothing.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from pathlib import Path

from convbench.stats.draw import (
    draw_probabilities,
    draw_systematic,
    expected_distances,
    sampling_sizes,
)
from convbench.stats.ppi import ScoredUnit, corrected_mean
from convbench.util.words import DrawBy
from tests.bench.bench import Row
from tests.helpers.simulate import Talk, talks

FIRST, MORE, TIMES = 40, 60, 1000


def world(rng: random.Random, *, loophole: bool) -> list[Talk]:
    """Return conversations; with the loophole, every fifth is paid 2 more, and people think
    anything of it."""
    found = []
    for group, judge, gold in talks(rng, 150, 2):
        if loophole and rng.random() < 0.2:
            found.append((group, judge + 2, gold + rng.gauss(0, 2)))
        else:
            found.append((group, judge, gold))
    return found


def twice(rng: random.Random, found: list[Talk], by: DrawBy) -> tuple[float, float, bool]:
    """Return (error of the mean, margin, whether the interval holds the truth, which is 0)."""
    scores = [judge for _, judge, _ in found]
    first = draw_probabilities([1.0] * len(found), FIRST)
    weights = dict.fromkeys(draw_systematic(first, rng), FIRST / (FIRST + MORE) / first[0])
    labelled = [(scores[i], found[i][2]) for i in weights]
    slope = statistics.linear_regression(*zip(*labelled, strict=True)) if labelled else None
    assert slope is not None
    rest = [(f, y - slope.slope * f - slope.intercept) for f, y in labelled]
    apart = expected_distances(scores, rest) if by == "optimal" else None
    chances = draw_probabilities(sampling_sizes(by, scores, apart), MORE)
    for i in draw_systematic(chances, rng):
        weights[i] = weights.get(i, 0.0) + MORE / (FIRST + MORE) / chances[i]
    units = [
        ScoredUnit(group, judge, gold if i in weights else None, weights.get(i, 0.0))
        for i, (group, judge, gold) in enumerate(found)
    ]
    made = corrected_mean(units)
    assert made is not None
    margin = made.estimate.margin or 0.0
    return made.estimate.mean, margin, abs(made.estimate.mean) <= margin


def draws(folder: Path) -> Iterator[Row]:
    """Yield the variance saved, and how often intervals after two draws hold the truth."""
    for loophole, least in ((True, 2.0), (False, -5.0)):
        found = {}
        for by in ("uniform", "optimal"):
            rng = random.Random(3)
            tried = [twice(rng, world(rng, loophole=loophole), by) for _ in range(TIMES)]
            found[by] = tried
        name = "with a loophole" if loophole else "as far everywhere"
        width = {by: statistics.mean(m for _, m, _ in tried) for by, tried in found.items()}
        saved = 100 * (1 - (width["optimal"] / width["uniform"]) ** 2)
        yield Row(f"labels drawn by need, {name}: variance saved", saved, "%", least, at_least=True)
        held = 100 * sum(h for _, _, h in found["optimal"]) / TIMES
        yield Row(f"after two draws, {name}: {held:.1f} %, off by", abs(held - 95), "points", 1.5)
