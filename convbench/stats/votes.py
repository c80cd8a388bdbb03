"""How many independent judges a panel is worth: Kish's effective size of correlated votes.

k judges whose errors correlate by r on average tell as much as n = k / (1 + (k - 1) r) independent
ones (Kish 1965, section 8.2; for panels of model judges arXiv 2605.29800, which finds nine worth
about two). Errors are what is left of the scores once people's scores are taken away. Without those
the scores themselves correlate more, for they share what is true of the conversations: then n is a
lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from convbench.stats.estimate import Estimate
from convbench.stats.jackknife import Moments, jackknife


@dataclass(frozen=True, slots=True)
class Votes:
    """What a panel is worth."""

    judges: int
    votes: float
    """Independent judges that would tell as much, 1 to `judges` unless errors cancel."""
    low: float | None
    high: float | None
    """95% interval; None with fewer than three groups."""
    correlation: float
    """Mean correlation of two judges' errors."""
    conversations: int
    groups: int


def votes(rows: Iterable[tuple[Hashable, Sequence[float]]]) -> Votes | None:
    """Return the worth of a panel from (group, each judge's error on one conversation).

    None with fewer than two judges, or where a judge's errors never vary. The interval is that of
    the mean correlation, on Fisher's scale, over groups.
    """
    coming = iter(rows)
    first = next(coming, None)
    judges = len(first[1]) if first is not None else 0
    if judges < 2:
        return None
    pairs = list(combinations(range(judges), 2))

    def mean_correlation(sums: Moments) -> float | None:
        n, once = sums[0], sums[1 : 1 + judges]
        square = sums[1 + judges : 1 + 2 * judges]
        spread = [s - a * a / n for a, s in zip(once, square, strict=True)] if n > 2 else []
        # What is left of equal numbers is rounding, no variance.
        if not spread or any(v <= 1e-12 * max(1.0, s) for v, s in zip(spread, square, strict=True)):
            return None
        found = (
            (along - once[a] * once[b] / n) / math.sqrt(spread[a] * spread[b])
            for (a, b), along in zip(pairs, sums[1 + 2 * judges :], strict=True)
        )
        return math.fsum(found) / len(pairs)

    def scaled(sums: Moments) -> float | None:
        found = mean_correlation(sums)
        return None if found is None else math.atanh(min(max(found, -0.999999), 0.999999))

    moments = (
        (group, (1.0, *x, *(v * v for v in x), *(x[a] * x[b] for a, b in pairs)))
        for group, x in chain([first] if first is not None else (), coming)
    )
    found = jackknife(moments, scaled)
    if found is None:
        return None
    low, high = _ends(found)
    return Votes(
        judges,
        worth(judges, math.tanh(found.mean)),
        None if high is None else worth(judges, high),
        None if low is None else worth(judges, low),
        math.tanh(found.mean),
        found.n,
        found.groups,
    )


def worth(judges: int, correlation: float) -> float:
    """Return Kish's effective number; at most `judges` squared, where errors cancel."""
    return judges / max(1 + (judges - 1) * correlation, 1 / judges)


def _ends(found: Estimate) -> tuple[float | None, float | None]:
    ends = found.interval
    return (None, None) if ends is None else (math.tanh(ends[0]), math.tanh(ends[1]))
