"""From draws and labels to the units of an estimate: weights, and people's mean scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from convbench.judge.gold.records import draws, home, labels
from convbench.schema.gold import Draw, GoldLabel
from convbench.stats.agreement import alpha
from convbench.store import Run


@dataclass(frozen=True)
class Gold:
    """What people said of the conversations that were drawn for one judge."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """By drawn conversation: inverse of its probability, over all draws."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By labelled conversation: mean over raters, by metric."""
    labels: tuple[GoldLabel, ...] = ()
    """Of drawn conversations, the newest of each person."""
    drawn: int = 0
    undrawn: int = 0
    """Labels of conversations that no draw took: they cannot be weighed, and do not count."""

    @property
    def skipped(self) -> dict[str, str]:
        """Conversations that nobody scored and somebody skipped, with the newest reason."""
        found = {x.conversation_id: x.skipped for x in self.labels if x.skipped is not None}
        return {name: why for name, why in found.items() if name not in self.scores}

    @property
    def raters(self) -> dict[str, int]:
        """How many each person has scored."""
        found: dict[str, int] = {}
        for one in self.labels:
            found[one.rater] = found.get(one.rater, 0) + (one.skipped is None)
        return found

    def agreement(self, metric: str) -> tuple[float | None, int]:
        """Return Krippendorff's alpha between people (interval level), and on how many
        conversations several of them gave this score."""
        names = sorted({x.rater for x in self.labels})
        by = {(x.rater, x.conversation_id): x.scores.get(metric) for x in self.labels}
        talks = sorted({x.conversation_id for x in self.labels})
        ratings = [[by.get((name, talk)) for talk in talks] for name in names]
        both = sum(sum(row[i] is not None for row in ratings) > 1 for i in range(len(talks)))
        return (alpha(ratings, "interval") if both else None), both


def gold_of(run: Run, fingerprint: str) -> Gold:
    """Return the gold labels for a judge, of the run's family."""
    place = home(run)
    taken = [draw for draw in draws(place) if draw.fingerprint == fingerprint]
    weights = _weights(taken)
    newest = labels(place).values()
    counted = tuple(x for x in newest if x.conversation_id in weights)
    return Gold(weights, _means(counted), counted, len(weights), len(newest) - len(counted))


def _weights(found: Iterable[Draw]) -> dict[str, float]:
    """Return each drawn conversation's weight: the mean over draws, by their size, of the inverse
    probability in those that took it. So each draw may hang on what earlier ones told, and the
    weighted sum is unbiased all the same (Zrnic, Candes, arXiv 2403.03208, section 5)."""
    listed = list(found)
    total = sum(draw.count for draw in listed) or 1
    weights: dict[str, float] = {}
    for draw in listed:
        for one in draw.drawn:
            more = draw.count / total / one.chance
            weights[one.conversation_id] = weights.get(one.conversation_id, 0.0) + more
    return weights


def _means(found: Iterable[GoldLabel]) -> dict[str, dict[str, float]]:
    given: dict[str, dict[str, list[float]]] = {}
    for one in found:
        for name, value in one.scores.items():
            given.setdefault(one.conversation_id, {}).setdefault(name, []).append(value)
    return {
        talk: {name: math.fsum(values) / len(values) for name, values in by.items()}
        for talk, by in given.items()
    }
