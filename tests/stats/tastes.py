"""Simulated policies whose texts moved, before two judges of one taste."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from convbench.reports.style_drift import FEATURES, StylePair
from convbench.reports.verdict import Evidence, Ruling, apply_decision_rule, second_opinion
from convbench.stats.means import estimate_mean

QUESTIONS, SAMPLES = 100, 2
NOISE = 0.2
"""Standard deviation of a judge's score beside its taste, within a question."""


@dataclass(frozen=True)
class World:
    """What a policy learnt, and what the judges pay for."""

    feature: str = "words"
    shift: float = 1.2
    """Standard deviations of Base's by which its texts have more of the feature."""
    better: float = 0.0
    """What the policy's answers are worth more."""
    pays: float = 0.07
    """What the judge that trains pays for a standard deviation of the feature."""
    second_pays: float = 0.07
    """What the second judge pays for it."""


def judged(rng: random.Random, world: World) -> Ruling:
    """Return the verdict on one policy: 100 questions, two conversations each, no labels."""
    first, second, style = [], [], {}
    for number in range(QUESTIONS):
        level, worth = rng.gauss(0, math.sqrt(0.5)), rng.gauss(0, 0.1)
        for sample in range(SAMPLES):
            place, group = f"q{number}#{sample}@1", f"q{number}"
            x = [level + rng.gauss(0, math.sqrt(0.5)) + world.shift * side for side in (0, 1)]
            good = [worth + world.better * side for side in (0, 1)]
            first.append((group, place, *_scores(rng, x, good, world.pays)))
            second.append((group, place, *_scores(rng, x, good, world.second_pays)))
            before, after = (_features(rng, world.feature, one) for one in x)
            style[place] = StylePair(group, group, before, after)
    opinion = second_opinion("b", first, second, style)
    assert opinion is not None
    gain = estimate_mean((group, b - a) for group, _, a, b in first)
    return apply_decision_rule(Evidence(gain, (opinion,)))


def _scores(
    rng: random.Random, x: list[float], good: list[float], pays: float
) -> tuple[float, float]:
    one, two = (
        value + pays * feature + rng.gauss(0, NOISE) for value, feature in zip(good, x, strict=True)
    )
    return one, two


def _features(rng: random.Random, moved: str, x: float) -> dict[str, float]:
    """Return a text's features: whole counts, of which one is as far from its mean as `x` says."""
    found = {name: float(rng.randrange(3)) for name in FEATURES}
    found["words"] = max(1.0, round(rng.gauss(120, 30)))
    mean, spread = (120.0, 30.0) if moved == "words" else (8.0, 3.0)
    return {**found, moved: max(0.0, round(mean + spread * x))}
