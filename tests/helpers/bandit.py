"""A bandit whose sums are known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from convbench.stats.offpolicy import (
    LoggedReward,
)

ACTIONS = 6


def policy(weights: Sequence[float], heat: float) -> list[float]:
    """Chances of the actions."""
    mass = [math.exp(w / heat) for w in weights]
    return [m / sum(mass) for m in mass]


class World:
    """Questions with six answers each, of known rewards, and two policies; all can be summed."""

    def __init__(self, questions: int, apart: float, seed: int) -> None:
        draw = random.Random(seed)
        self.rewards = [[draw.random() for _ in range(ACTIONS)] for _ in range(questions)]
        likes = [[draw.gauss(0, 1) for _ in range(ACTIONS)] for _ in range(questions)]
        self.logging = [policy(one, 1.0) for one in likes]
        self.new = [
            policy([a + apart * r for a, r in zip(one, rewards, strict=True)], 1.0)
            for one, rewards in zip(likes, self.rewards, strict=True)
        ]

    def value(self) -> float:
        """The new policy's mean reward."""
        found = [
            sum(p * r for p, r in zip(chances, rewards, strict=True))
            for chances, rewards in zip(self.new, self.rewards, strict=True)
        ]
        return sum(found) / len(found)

    def log(self, questions: int, samples: int, seed: int) -> list[LoggedReward]:
        """A log of the logging policy on questions drawn with replacement."""
        draw = random.Random(seed)
        found = []
        for place in range(questions):
            x = draw.randrange(len(self.rewards))
            for _ in range(samples):
                a = draw.choices(range(ACTIONS), self.logging[x])[0]
                ratio = math.log(self.new[x][a] / self.logging[x][a])
                found.append(LoggedReward(f"{place}", ratio, self.rewards[x][a]))
        return found
