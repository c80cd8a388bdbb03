"""Duels between policies of known strengths: what rankings are tried on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from convbench.stats.duels import Round


def plays(
    rng: random.Random, strengths: Sequence[float], count: int, *, length: float = 0.0,
    spread: float = 0.0, each: int = 2,
) -> list[Round]:  # fmt: skip
    """Return duels of two policies at a time, `each` a group, a tie where the orders disagree.

    Policy 1 writes twice as much as the others; `length` is what (a - b) / (a + b) adds to the
    log odds, `spread` how far a group's own taste moves them.
    """
    out: list[Round] = []
    while len(out) < count:
        group = str(len(out) // each)
        taste = [rng.gauss(0, spread) for _ in strengths]
        for _ in range(each):
            one, other = rng.sample(range(len(strengths)), 2)
            a, b = (rng.lognormvariate(0, 0.3) * (2 if k == 1 else 1) for k in (one, other))
            longer = (a - b) / (a + b)
            apart = strengths[one] - strengths[other] + taste[one] - taste[other]
            chance = 1 / (1 + math.exp(-apart - length * longer))
            out.append(Round(one, other, float(rng.random() < chance), group, longer))
    return out
