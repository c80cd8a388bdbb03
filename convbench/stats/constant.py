"""What answers that are one constant score: a floor that scores are read beside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ConstantAnswer:
    """What answers that are one constant score on the tasks judged: a floor for their scores."""

    name: str
    """The constant that is best over all tasks, as Python writes it."""
    score: float
    """Its mean score."""
    each: float
    """Mean score of the constant that is best for each task."""
    tasks: int

    def __str__(self) -> str:
        return (
            f"answers that are one constant score {self.score:.3f} ({self.name}, the best for all "
            f"{self.tasks} tasks) and {self.each:.3f} (the best for each task)"
        )


def constant_answer(
    found: Iterable[tuple[str, Mapping[str, float], Mapping[str, Any]]],
) -> ConstantAnswer | None:
    """Return the best constants over tasks, from (task, scores, details) of verdicts on them; None
    where no verdict tells. Each task counts once."""
    best: dict[str, float] = {}
    totals: dict[str, float] = {"None": 0.0}
    for task, scores, details in found:
        shares = details.get("constants")
        if task in best or "constant" not in scores or not isinstance(shares, Mapping):
            continue
        best[task] = scores["constant"]
        for name, share in shares.items():
            totals[name] = totals.get(name, 0.0) + (share if isinstance(share, float) else 0.0)
    if not best:
        return None
    name = max(totals, key=totals.__getitem__)
    each = math.fsum(best.values()) / len(best)
    return ConstantAnswer(name, totals[name] / len(best), each, len(best))
