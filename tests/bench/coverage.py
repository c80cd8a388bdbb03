"""How often intervals hold the truth: 95 ± 1.5 % over 3,000 simulations with clusters.

Each interval that a report prints of gold labels is tried on simulated conversations, three a
question, whose true means are known.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from convbench.stats.agreement import judge_agreement
from convbench.stats.covariates import drift_difference, mean_drift
from convbench.stats.means import Estimate, estimate_mean, share_interval
from convbench.stats.ppi import (
    check_transport,
    corrected_difference,
    corrected_mean,
    ratio_of_means,
)
from tests.bench.bench import Row
from tests.helpers.simulate import labelled, talks

TIMES = 3000
OFF = 1.5
"""Percentage points that the share may be off."""
Found = Mapping[str, tuple["Estimate | _Between | None", float]]
"""By name: an estimate and what is true."""


def _one(labels: int) -> Callable[[random.Random], Found]:
    def go(rng: random.Random) -> Found:
        found = corrected_mean(labelled(rng, talks(rng, 150, 3), labels))
        assert found is not None
        name = f"{labels} labels"
        return {
            f"corrected mean, {name}": (found.estimate, 0.0),
            f"judge's bias, {name}": (found.bias, 0.5),
        }

    return go


def _two(rng: random.Random) -> Found:
    level = [rng.gauss(0, 1) for _ in range(150)]
    one, two = talks(rng, 150, 3, shared=level), talks(rng, 150, 3, shared=level, bias=1.0)
    a, b = labelled(rng, one, 60), labelled(rng, two, 60)
    pairs = ((g, other, mine) for (g, other, _), (_, mine, _) in zip(one, two, strict=True))
    raw = estimate_mean((x.group, y.judge - x.judge) for x, y in zip(a, b, strict=True))
    # The judge's scores vary by 0.49 * (1 + 0.49) + 0.36 around their mean.
    spread = (0.49 * (1 + 0.49) + 0.36) ** 0.5
    return {
        "corrected paired difference, 60 labels each": (corrected_difference(a, b), 0.0),
        "judge's paired difference": (raw, 0.5),
        "drift in standard deviations": (mean_drift(pairs), 0.5 / spread),
        "difference of biases": (check_transport(a, b, 10.0).apart, 0.5),
    }


@dataclass(frozen=True)
class _Between:
    """An interval that is no mean's."""

    interval: tuple[float, float] | None


def _report(rng: random.Random) -> Found:
    """Shares of right answers, 60 questions with three conversations each, as `report` has them."""
    rows = []
    for group in range(60):
        level = rng.uniform(0.2, 0.8)
        rows += [(str(group), float(rng.random() < level), float(rng.random() < level + 0.15))
                 for _ in range(3)]  # fmt: skip
    return {
        "share of right answers": (estimate_mean((g, a) for g, a, _ in rows), 0.5),
        "paired difference of shares": (estimate_mean((g, b - a) for g, a, b in rows), 0.15),
    }


def _simulators(rng: random.Random) -> Found:
    """A policy's differences to Base with two simulated humans: 1 with the one, 0.4 with the
    other, three conversations of 80 questions."""
    rows = []
    for group in range(80):
        level, taste = rng.gauss(0, 0.7), rng.gauss(0, 0.4)
        rows += [(str(group), 1 + level + taste + rng.gauss(0, 1),
                  0.4 + level - taste + rng.gauss(0, 1)) for _ in range(3)]  # fmt: skip
    share = ratio_of_means((g, d - e, d + e) for g, d, e in rows)
    assert share is not None
    return {
        "two simulators: first less second": (estimate_mean((g, d - e) for g, d, e in rows), 0.6),
        "two simulators: the simulator's share": (
            _Between(share.interval or (-math.inf, math.inf)), 0.6 / 1.4,
        ),
    }  # fmt: skip


def _another(rng: random.Random) -> Found:
    """A judge that trained pays 0.5 more of its points, another one nothing, on 150 questions."""
    level = [rng.gauss(0, 1) for _ in range(150)]
    one, two = talks(rng, 150, 3, shared=level), talks(rng, 150, 3, shared=level, bias=1.0)
    seen = [(mine + rng.gauss(0, 0.5), other + rng.gauss(0, 0.5))
            for (*_, mine), (*_, other) in zip(one, two, strict=True)]  # fmt: skip
    rows = [(g, a, b, c, d) for (g, a, _), (_, b, _), (c, d) in zip(one, two, seen, strict=True)]
    spread = (0.49 * (1 + 0.49) + 0.36) ** 0.5
    between = judge_agreement(("a", "b"), [g for g, *_ in rows], [a for _, a, *_ in rows],
                        [c for *_, c, _ in rows])  # fmt: skip
    return {
        "overpaid by another judge, in standard deviations": (drift_difference(rows), 0.5 / spread),
        "two judges: first less second": (between.apart, 0.5),
    }


def _shares(rng: random.Random) -> Found:
    """Shares with faults or flips: 5, 10 and 90 % of three conversations of 60 questions, that
    correlate by 0.3 within a question."""
    found: dict[str, tuple[Estimate | _Between | None, float]] = {}
    for share in (0.05, 0.1, 0.9):
        rows = []
        for group in range(60):
            level = rng.betavariate(share * 7 / 3, (1 - share) * 7 / 3)
            rows += [(str(group), float(rng.random() < level)) for _ in range(3)]
        made = estimate_mean(rows)
        assert made is not None
        found[f"share of {share:.0%}"] = (_Between(share_interval(made)), share)
    return found


SIMULATIONS: tuple[Callable[[random.Random], Found], ...] = (
    _one(40), _one(100), _two, _report, _simulators, _another, _shares,
)  # fmt: skip


def coverage(folder: Path) -> Iterator[Row]:
    """Yield how far each interval's coverage is from 95 %."""
    for number, simulate in enumerate(SIMULATIONS):
        rng = random.Random(number)
        held: dict[str, int] = {}
        for _ in range(TIMES):
            for name, (found, true) in simulate(rng).items():
                low, high = (found.interval if found is not None else None) or (1.0, 0.0)
                held[name] = held.get(name, 0) + (low <= true <= high)
        for name, count in held.items():
            share = 100 * count / TIMES
            yield Row(f"{name}: {share:.1f} %, off by", abs(share - 95), "points", OFF)
