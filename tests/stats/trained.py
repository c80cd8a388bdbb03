"""Simulated pairs of policies, Base and one that was trained, with the verdict on them."""

from __future__ import annotations

import random

from convbench.reports.gold import gold_difference
from convbench.reports.verdict import Evidence, Ruling, TruthMeasure, apply_decision_rule
from convbench.stats.ppi import ScoredUnit
from tests.helpers.simulate import labelled, talks


def said(
    rng: random.Random,
    *,
    better: float = 0.0,
    paid: float = 0.0,
    labels: int = 50,
    groups: int = 60,
) -> Ruling:
    """Return the verdict on a policy that people find `better`, and whose conversations the judge
    pays `paid` more for nothing; `labels` of each policy at the same questions."""
    level = [rng.gauss(0, 1) for _ in range(groups)]
    base = talks(rng, groups, 3, shared=level)
    other = talks(rng, groups, 3, shared=[one + better for one in level], bias=0.5 + paid)
    a: list[ScoredUnit] = labelled(rng, base, labels)
    b: list[ScoredUnit] = labelled(rng, other, labels)
    found = gold_difference("trained", a, b, scale=10)
    assert found.raw is not None
    truths = ()
    if found.corrected is not None:
        truths = (
            TruthMeasure(
                "people's score", found.corrected, found.bias, found.raw.mean, people=True
            ),
        )
    return apply_decision_rule(Evidence(found.raw, truths))
