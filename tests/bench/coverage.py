"""How often intervals hold the truth: 95 ± 1.5 % over 3,000 simulations with clusters.

Each interval that a report prints of gold labels is tried on simulated conversations, three a
question, whose true means are known.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from convbench.stats.drift import drift
from convbench.stats.estimate import Estimate, estimate
from convbench.stats.ppi import corrected, difference
from convbench.stats.transport import transport
from convbench.words import DrawBy
from tests.bench.bench import Row
from tests.stats.simulate import labelled, talks

TIMES = 3000
OFF = 1.5
"""Percentage points that the share may be off."""
Found = Mapping[str, tuple[Estimate | None, float]]
"""By name: an estimate and what is true."""


def _one(by: DrawBy, labels: int) -> Callable[[random.Random], Found]:
    def go(rng: random.Random) -> Found:
        found = corrected(labelled(rng, talks(rng, 150, 3), labels, by))
        assert found is not None
        name = f"{labels} labels, {by}"
        return {
            f"corrected mean, {name}": (found.estimate, 0.0),
            f"judge's bias, {name}": (found.bias, 0.5),
        }

    return go


def _two(rng: random.Random) -> Found:
    level = [rng.gauss(0, 1) for _ in range(150)]
    one, two = talks(rng, 150, 3, shared=level), talks(rng, 150, 3, shared=level, bias=1.0)
    a, b = labelled(rng, one, 60, "uniform"), labelled(rng, two, 60, "uniform")
    pairs = ((g, other, mine) for (g, other, _), (_, mine, _) in zip(one, two, strict=True))
    raw = estimate((x.group, y.judge - x.judge) for x, y in zip(a, b, strict=True))
    # The judge's scores vary by 0.49 * (1 + 0.49) + 0.36 around their mean.
    spread = (0.49 * (1 + 0.49) + 0.36) ** 0.5
    return {
        "corrected paired difference, 60 labels each": (difference(a, b), 0.0),
        "judge's paired difference": (raw, 0.5),
        "drift in standard deviations": (drift(pairs), 0.5 / spread),
        "difference of biases": (transport(a, b, 10.0).apart, 0.5),
    }


SIMULATIONS: tuple[Callable[[random.Random], Found], ...] = (
    _one("uniform", 40), _one("uniform", 100), _one("score", 100), _one("optimal", 100),
    _one("stratified", 100), _two,
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
