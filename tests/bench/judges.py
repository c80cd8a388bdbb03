"""How often the intervals of comparisons and panels hold the truth: 95 ± 1.5 % over simulations."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from convbench.stats.agreement import effective_number, effective_votes
from convbench.stats.covariates import length_bias
from convbench.stats.duels import rank_policies, summarise_wins
from convbench.stats.means import Estimate, share_interval
from tests.bench.bench import Row
from tests.stats import panels

TIMES = 2000
OFF = 1.5
"""Percentage points that the share may be off."""
STRENGTHS, LENGTH = (0.0, 0.5, -0.5, 0.2), 1.2
RESAMPLED = 300
"""Bootstrap samples a simulation; a report takes more."""
Ends = tuple[float | None, float | None]
Held = Mapping[str, tuple[Ends, float]]


def _ends(found: Estimate | None) -> Ends:
    return (found.interval if found else None) or (None, None)


def _duels(rng: random.Random) -> Held:
    found = summarise_wins(panels.duels(rng, 80, 3))
    assert found is not None
    return {
        "win rate, 80 groups": (_ends(found.rate), panels.RATE),
        "share of flips": (share_interval(found.flips) or (None, None), panels.FLIPS),
        "pull of the first place": (_ends(found.first), panels.FIRST),
    }


def _panel(rng: random.Random) -> Held:
    found = effective_votes(panels.errors(rng, 80, 3, 3))
    assert found is not None
    rows = panels.leans(rng, 80, 4)
    # Its own family is every other conversation whatever its length, so that each stands alone.
    length = length_bias((group, words, lean) for group, _, words, lean in rows)
    return {
        "votes of a panel of three": (
            (found.low, found.high),
            effective_number(3, panels.CORRELATION),
        ),
        "length bias": (_ends(length), panels.TWICE),
    }


def _strengths(rng: random.Random) -> Held:
    rounds = panels.rounds(rng, STRENGTHS, LENGTH, 150, 3)
    found = rank_policies(4, rounds, length=True, seed=rng.getrandbits(32), times=RESAMPLED)
    if found is None or found.length is None:
        return {"all strengths at once": ((None, None), 0.0)}
    apart = [(b.low, b.high, true) for b, true in zip(found.strengths, STRENGTHS, strict=True)]
    whole = all(low is not None and high is not None and low <= true <= high
                for low, high, true in apart)  # fmt: skip
    return {
        "all strengths at once, length beside them": ((0.0, 0.0 if whole else -1.0), 0.0),
        "log odds of twice as long": ((found.length.low, found.length.high), LENGTH / 3),
    }


def _plain(rng: random.Random) -> Held:
    """Strengths as they were judged, of policies whose answers are as long."""
    found = rank_policies(4, panels.rounds(rng, STRENGTHS, 0.0, 150, 3), seed=rng.getrandbits(32),
                    times=RESAMPLED)  # fmt: skip
    if found is None:
        return {"all strengths at once": ((None, None), 0.0)}
    whole = all(
        b.low is not None and b.high is not None and b.low <= true <= b.high
        for b, true in zip(found.strengths, STRENGTHS, strict=True)
    )
    return {"all strengths at once": ((0.0, 0.0 if whole else -1.0), 0.0)}


SIMULATIONS: tuple[tuple[Callable[[random.Random], Held], int], ...] = (
    (_duels, TIMES), (_panel, TIMES), (_strengths, 1000), (_plain, 1000),
)  # fmt: skip


def judges(folder: Path) -> Iterator[Row]:
    """Yield how far each interval's coverage is from 95 %."""
    for number, (simulate, times) in enumerate(SIMULATIONS):
        rng = random.Random(number)
        held: dict[str, int] = {}
        for _ in range(times):
            for name, ((low, high), true) in simulate(rng).items():
                inside = low is not None and high is not None and low <= true <= high
                held[name] = held.get(name, 0) + inside
        for name, count in held.items():
            share = 100 * count / times
            yield Row(f"{name}: {share:.1f} %, off by", abs(share - 95), "points", OFF)
