"""Ties: what becomes of conversations of one task whose rewards are equal where one is wanted."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from convbench.schema.recipe import TieRule

T = TypeVar("T")
SAID = {
    "random": "one of the equals is drawn",
    "all": "all of the equals are taken",
    "drop": "these questions are left out",
}


@dataclass(frozen=True, slots=True)
class Ties:
    """How many of the tasks that train had equals where one was wanted."""

    rule: TieRule
    tied: int
    """Tasks with equals."""
    tasks: int
    """Tasks that were looked at."""

    def describe(self) -> Iterator[str]:
        """Yield how many there were and what became of them."""
        yield f"tied questions: {self.tied} of {self.tasks} (ties: {self.rule}, {SAID[self.rule]})"

    def record(self) -> dict[str, Any]:
        """Return what `training.json` keeps."""
        return {"rule": self.rule, "tied": self.tied, "tasks": self.tasks}


def equals(rewards: Sequence[float], value: float) -> list[int]:
    """Return the places of the rewards that are `value`, rounding aside."""
    return [i for i, r in enumerate(rewards) if math.isclose(r, value, rel_tol=1e-9, abs_tol=1e-12)]


def settle(tied: Sequence[T], rule: TieRule, *key: object) -> list[T]:
    """Return which of the equals are taken: the only one there is, or what the rule says.

    `random` draws by `key` (the seed, the task, and what is wanted), so that the draw of one task
    hangs on no other task.
    """
    if len(tied) < 2 or rule == "all":
        return list(tied)
    if rule == "drop":
        return []
    return [random.Random("/".join(map(str, ("ties", *key)))).choice(tied)]
