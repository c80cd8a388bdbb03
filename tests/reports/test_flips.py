"""A ranking that flips between two simulated humans: by intervals, not by signs."""

from __future__ import annotations

import random

import pytest

from convbench.reports.measures import ACCURACY
from convbench.reports.simulators import SimulatorDifference
from convbench.stats.means import Estimate, estimate_mean
from convbench.stats.ppi import ratio_of_means


def apart(rng: random.Random, first: float, second: float) -> SimulatorDifference:
    """Return a policy of these differences to Base with the two humans; 100 questions of two."""
    rows = [
        (f"q{number}", rng.gauss(first, 0.5), rng.gauss(second, 0.5))
        for number in range(100) for _ in range(2)
    ]  # fmt: skip
    made: list[Estimate | None] = [
        estimate_mean((g, d) for g, d, _ in rows), estimate_mean((g, e) for g, _, e in rows),
        estimate_mean((g, d - e) for g, d, e in rows),
    ]  # fmt: skip
    one, two, less = made
    share = ratio_of_means((g, d - e, d + e) for g, d, e in rows)
    assert one is not None
    assert two is not None
    assert less is not None
    assert share is not None
    return SimulatorDifference("policy", ACCURACY, one, two, less, share)


@pytest.mark.parametrize(
    ("second", "most", "least"), [(0.0, 10, 0), (0.03, 6, 0), (-0.15, 200, 190)]
)
def test_flips_are_those_of_both_intervals(second: float, most: int, least: int) -> None:
    """By signs it would be half of those whose second difference is 0."""
    rng = random.Random(1)
    said = [apart(rng, 0.2, second).outcome for _ in range(200)]
    assert least <= said.count("flips") <= most


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [(0.5, 0.5, "better with both"), (-0.5, -0.5, "worse with both"), (0.5, 0.0, "undetermined")],
)
def test_a_win_is_one_of_both_intervals(first: float, second: float, said: str) -> None:
    assert apart(random.Random(2), first, second).outcome == said
