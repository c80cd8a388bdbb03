"""Judge until decided: groups that it takes, and how often it is wrong, over 1,000 simulations."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Row
from tests.stats.betting import stopping_point
from tests.stats.matches import duel_values

TIMES = 1000
GROUPS = 500
SAVED, ALARMS = 40.0, 5.0
"""Least percent fewer groups at 0.3 standard deviations, most percent of false alarms."""


def sequential(folder: Path) -> Iterator[Row]:
    """Yield what is saved at some differences, and false alarms and wrong winners."""
    rng = random.Random(0)
    spread = statistics.pstdev(duel_values(rng, 0.0) for _ in range(20_000))
    for difference in (0.1, 0.2, 0.3, 0.4):
        found = _many(difference * spread)
        used = statistics.fmean(groups for groups, _ in found)
        sure = 100 * sum(side == 1 for _, side in found) / TIMES
        wrong = 100 * sum(side == -1 for _, side in found) / TIMES
        what = f"until decided, {difference} standard deviations, {GROUPS} groups"
        bound = SAVED if difference >= 0.3 else 0.0
        yield Row(
            f"{what}: judge calls saved", 100 * (1 - used / GROUPS), "%", bound, at_least=True
        )
        yield Row(f"{what}: winner found", sure, "%", 0.0, at_least=True)
        yield Row(f"{what}: the loser named", wrong, "%", ALARMS)
    alarms = 100 * sum(side != 0 for _, side in _many(0.0)) / TIMES
    yield Row(f"until decided, no difference, {GROUPS} groups: false alarms", alarms, "%", ALARMS)


def _many(better: float) -> list[tuple[int, int]]:
    """Return (groups, side) of many simulations."""
    found = []
    for seed in range(TIMES):
        rng = random.Random(f"{seed} {better}")
        found.append(stopping_point(duel_values(rng, better) for _ in range(GROUPS)))
    return found
