"""Judges and duels with known truths, correlated within groups: what intervals are tried on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from statistics import NormalDist

from convbench.stats.duels import Duel, Round

RATE, FIRST, FLIPS = 0.5, 0.6, 0.52 - 2 * 0.04 / 3
"""Of `duels`: with c uniform on 0.3 to 0.7 the first shown is preferred by 0.1 more."""
CORRELATION = 0.5
OWN, TWICE = 0.3, 0.2


def duels(rng: random.Random, groups: int, each: int) -> Iterator[Duel]:
    """Yield duels whose groups have a level of their own."""
    for group in range(groups):
        level = rng.uniform(-0.2, 0.2)
        for _ in range(each):
            ahead, behind = rng.random() < 0.6 + level, rng.random() < 0.4 + level
            yield Duel(str(group), float(ahead), float(behind))


def rounds(
    rng: random.Random, strengths: tuple[float, ...], length: float, groups: int, each: int
) -> list[Round]:
    """Return duels whose outcomes correlate within a group and whose odds are exactly these."""
    found = []
    for group in range(groups):
        mood = rng.gauss(0, math.sqrt(0.5))
        one, other = rng.sample(range(len(strengths)), 2)
        for _ in range(each):
            longer = rng.uniform(-0.5, 0.5)
            chance = 1 / (1 + math.exp(strengths[other] - strengths[one] - length * longer))
            won = mood + rng.gauss(0, math.sqrt(0.5)) < NormalDist().inv_cdf(chance)
            found.append(Round(one, other, float(won), str(group), longer))
    return found


def errors(
    rng: random.Random, groups: int, each: int, judges: int
) -> list[tuple[str, list[float]]]:
    """Return judges' errors, every two correlating by CORRELATION, half of it by group."""
    found = []
    for group in range(groups):
        shared = rng.gauss(0, math.sqrt(CORRELATION / 2))
        own = [rng.gauss(0, math.sqrt((1 - CORRELATION) / 2)) for _ in range(judges)]
        for _ in range(each):
            here = shared + rng.gauss(0, math.sqrt(CORRELATION / 2))
            found.append((str(group), [
                here + mine + rng.gauss(0, math.sqrt((1 - CORRELATION) / 2)) for mine in own
            ]))  # fmt: skip
    return found


def leans(rng: random.Random, groups: int, each: int) -> list[tuple[str, bool, int, float]]:
    """Return (group, own family, words, lean): OWN higher for its own, TWICE for twice as many."""
    found = []
    for group in range(groups):
        level = rng.gauss(0, 0.5)
        for k in range(each):
            words = max(1, round(math.exp(rng.gauss(4.5, 0.6))))
            lean = level + TWICE * math.log2(words) + rng.gauss(0, 0.8)
            found.append((str(group), k % 2 == 0, words, lean + OWN * (k % 2 == 0)))
    return found
