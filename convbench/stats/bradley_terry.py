"""Strengths of several policies from duels: Bradley-Terry, clustered bootstrap, length beside it.

The odds of policy i against j are exp(s_i - s_j + b x): s are strengths, the first policy's being
0, and x what else tells them apart, here how much longer i's answer is (style control as for
Arena-Hard, Li et al., arXiv 2406.11939). A duel's value between 0 and 1 is so much of a win, a tie
one half; the likelihood is that of a logistic regression, maximised by Newton's method (Bradley and
Terry 1952; for covariates Springall 1973). At x = 0 the strengths are those at equal length.

Errors are from resampling whole groups with all their duels. Intervals of the strengths hold
together: the quantile of the largest studentised deviation over all policies replaces that of one
(Romano and Wolf 2005), widened as Student's t is from the normal for so few groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.stats.means import t_critical

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

LEVEL = 0.95
TIMES = 1000
"""Bootstrap samples."""
MOST_LOST = 0.02
"""Share of them that may have no finite strengths; beyond it there are no intervals."""
FAR = 20.0
"""Log odds beyond which a strength is not finite: a policy won, or lost, all."""


@dataclass(frozen=True, slots=True)
class Round:
    """One duel between two of the policies, by their place in the list."""

    one: int
    other: int
    value: float
    """What it is worth to `one`, 0 to 1."""
    group: str
    longer: float = 0.0
    """How much longer one's answer is, as a share of both: (a - b) / (a + b), -1 to 1."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A number with its interval; the ends are None where there is none to tell."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Strengths of policies in log odds against the first of them."""

    strengths: tuple[Bound, ...]
    """One a policy, the first being 0; the intervals of all hold together."""
    length: Bound | None
    """Log odds of an answer twice as long as the other's against one as long; None where length
    does not count. Its interval stands alone."""
    groups: int
    rounds: int


def ranking(
    policies: int,
    rounds: Sequence[Round],
    *,
    length: bool = False,
    seed: int = 0,
    times: int = TIMES,
    level: float = LEVEL,
) -> Ranking | None:
    """Return the strengths of `policies`; None where they are not finite: policies that never met,
    even through others, one that won or lost everything, lengths that never differ.

    The bootstrap is drawn from `seed`: the same duels give the same intervals.
    """
    import numpy as np

    if policies < 2 or not rounds:
        return None
    design, value, cluster, groups = _matrix(policies, rounds, length)
    found = _fit(design, value, np.ones(len(value)))
    if found is None:
        return None
    drawn = _bootstrap(design, value, cluster, groups, found, np.random.default_rng(seed), times)
    bounds = _bounds(found, drawn, times, groups, policies - 1, level)
    # (2 - 1) / (2 + 1): what one answer twice as long as the other is.
    third = [None if x is None else x / 3 for x in bounds[-1]] if length else None
    return Ranking(
        (Bound(0.0, 0.0, 0.0), *(Bound(*bound) for bound in bounds[: policies - 1])),
        None if third is None else Bound(*third),  # type: ignore[arg-type]
        groups,
        len(rounds),
    )


def odds(strength: float) -> float:
    """Return how often a policy of this strength beats the first one."""
    return 1 / (1 + math.exp(-strength))


def _matrix(
    policies: int, rounds: Sequence[Round], length: bool
) -> tuple[Array, Array, Array, int]:
    """Return (design, values, group of each round, number of groups)."""
    import numpy as np

    design = np.zeros((len(rounds), policies - 1 + length))
    for row, one in enumerate(rounds):
        if one.one:
            design[row, one.one - 1] += 1
        if one.other:
            design[row, one.other - 1] -= 1
        if length:
            design[row, -1] = one.longer
    places = {name: i for i, name in enumerate(dict.fromkeys(one.group for one in rounds))}
    cluster = np.array([places[one.group] for one in rounds])
    return design, np.array([one.value for one in rounds]), cluster, len(places)


def _fit(design: Array, value: Array, weight: Array, start: Array | None = None) -> Array | None:
    """Return the maximum of the likelihood, None where it is not finite or not unique."""
    import numpy as np

    at = np.zeros(design.shape[1]) if start is None else start.copy()
    for _ in range(60):
        chance = 1 / (1 + np.exp(-np.clip(design @ at, -FAR * 2, FAR * 2)))
        slope = design.T @ (weight * (value - chance))
        bend = (design * (weight * chance * (1 - chance))[:, None]).T @ design
        try:
            step = np.linalg.solve(bend, slope)
        except np.linalg.LinAlgError:
            return None
        largest = float(np.abs(step).max())
        at = at + step * min(1.0, 4.0 / largest if largest else 1.0)
        if not np.isfinite(at).all() or np.abs(at).max() > FAR:
            return None
        if largest < 1e-11:
            return at
    return None


def _bootstrap(
    design: Array, value: Array, cluster: Array, groups: int, found: Array, rng: Any, times: int
) -> list[Array]:
    """Return the strengths of samples of groups, those that are finite."""
    import numpy as np

    out = []
    for _ in range(times if groups > 1 else 0):
        counts = np.bincount(rng.integers(groups, size=groups), minlength=groups)
        again = _fit(design, value, counts[cluster].astype(float), found)
        if again is not None:
            out.append(again)
    return out


def _bounds(
    found: Array, drawn: list[Array], times: int, groups: int, together: int, level: float
) -> list[tuple[float, float | None, float | None]]:
    """Return (value, low, high) of each number: the first `together` hold at once, others alone."""
    import numpy as np

    if groups < 3 or len(drawn) < (1 - MOST_LOST) * times or len(drawn) < 2:
        return [(float(x), None, None) for x in found]
    apart = np.array(drawn) - found
    error = np.sqrt((apart**2).mean(axis=0) * groups / (groups - 1))
    if not (error > 0).all():
        return [(float(x), None, None) for x in found]
    wider = t_critical(groups - 1, level) / t_critical(10**6, level)
    largest = (np.abs(apart[:, :together]) / error[:together]).max(axis=1)
    joint = float(np.quantile(largest, level, method="higher")) * wider
    margins = [joint if k < together else t_critical(groups - 1, level) for k in range(len(found))]
    return [
        (float(x), float(x - m * e), float(x + m * e))
        for x, m, e in zip(found, margins, error, strict=True)
    ]
