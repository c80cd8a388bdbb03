"""Duels of two policies: win rate and position bias.

Bradley-Terry strengths of several policies from duels, with an optional length covariate.

The odds of policy i against j are exp(s_i - s_j + b x): s are strengths, the first policy's being
0, and x is a covariate, here how much longer i's answer is (style control as for Arena-Hard, Li
et al., arXiv 2406.11939). A duel's value from 0 to 1 is a fraction of a win, a tie one half; the
likelihood is that of a logistic regression, maximised by Newton's method (Bradley and Terry 1952;
for covariates Springall 1973). At x = 0 the strengths are those at equal length.

Errors come from a bootstrap of groups with all their duels. Intervals of the strengths are
simultaneous: the quantile of the largest studentised deviation over all policies replaces that of
one (Romano and Wolf 2005), widened by the ratio of Student's t to the normal for so few groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.stats.means import LEVEL, Estimate, estimate_mean, t_critical

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Duel:
    """One pair of conversations with the judge's preference for the first policy's, 0 to 1."""

    group: str
    """The independent unit."""
    ahead: float
    """Preference when the first policy's conversation is shown first."""
    behind: float
    """Preference when it is shown second."""
    first_id: str = ""
    """conversation_id of the first policy."""
    second_id: str = ""
    """conversation_id of the second policy."""

    @property
    def value(self) -> float:
        """Mean preference for the first policy over both orders, 0 to 1."""
        return (self.ahead + self.behind) / 2

    @property
    def flip(self) -> int:
        """1 if each order prefers the conversation it shows first, -1 if the one it shows second, 0
        if the order does not decide the winner."""
        if self.ahead > 0.5 > self.behind:
            return 1
        return -1 if self.ahead < 0.5 < self.behind else 0


@dataclass(frozen=True, slots=True)
class WinSummary:
    """Win rate and position bias of a set of duels."""

    rate: Estimate
    """Win rate of the first policy."""
    wins: int
    ties: int
    losses: int
    flips: Estimate
    """Share of duels whose winner depends on the order."""
    to_first: int
    """Number of flips in which each order prefers the conversation shown first."""
    first: Estimate
    """Mean preference for the conversation shown first; one half without position bias."""


def summarise_wins(duels: Iterable[Duel]) -> WinSummary | None:
    """Return win rate, flips and position bias of duels; None without a duel."""
    duel_list = list(duels)
    rate = estimate_mean((duel.group, duel.value) for duel in duel_list)
    flips = estimate_mean((duel.group, float(duel.flip != 0)) for duel in duel_list)
    first = estimate_mean((duel.group, (duel.ahead + 1 - duel.behind) / 2) for duel in duel_list)
    if rate is None or flips is None or first is None:
        return None
    return WinSummary(
        rate=rate,
        wins=sum(duel.value > 0.5 for duel in duel_list),
        ties=sum(duel.value == 0.5 for duel in duel_list),
        losses=sum(duel.value < 0.5 for duel in duel_list),
        flips=flips,
        to_first=sum(duel.flip == 1 for duel in duel_list),
        first=first,
    )


EVEN = 0.5
"""The win rate without a winner."""
TIMES = 1000
"""Bootstrap samples."""
MOST_LOST = 0.02
"""Largest share of them without finite strengths; above it there are no intervals."""
FAR = 20.0
"""Log odds above which a strength counts as infinite: a policy won, or lost, every duel."""


@dataclass(frozen=True, slots=True)
class Round:
    """One duel between two policies, given by their index in the list of policies."""

    first: int
    second: int
    value: float
    """Result for the first policy, from 0 (lost) to 1 (won)."""
    group: str
    longer: float = 0.0
    """How much longer the first's answer is: (a - b) / (a + b) of the lengths, -1 to 1."""


@dataclass(frozen=True, slots=True)
class IntervalEstimate:
    """A number with its interval; both ends are None without one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Strengths of policies in log odds against the first of them."""

    strengths: tuple[IntervalEstimate, ...]
    """One for each policy, the first being 0; the intervals are simultaneous."""
    length: IntervalEstimate | None
    """Log odds gained by an answer twice as long as the other's; None if length is no covariate.
    Its interval is pointwise."""
    groups: int
    rounds: int


def rank_policies(
    policies: int,
    rounds: Sequence[Round],
    *,
    length: bool = False,
    seed: int = 0,
    times: int = TIMES,
) -> Ranking | None:
    """Return the strengths of `policies` policies in log odds against the first of them.

    Return None for fewer than two policies, without duels, or if a strength is not finite: policies
    not connected by duels, one that won or lost every duel, or with `length` lengths that never
    differ. Intervals are None with fewer than three groups, or if over 2% of the `times` bootstrap
    samples have no finite strengths. The bootstrap is seeded by `seed`: the same duels give the
    same intervals.
    """
    import numpy as np

    if policies < 2 or not rounds:
        return None
    design, value, cluster, groups = _design_matrix(policies, rounds, length)
    strengths = _fit_strengths(design, value, np.ones(len(value)))
    if strengths is None:
        return None
    drawn = _bootstrap_strengths(
        design, value, cluster, groups, strengths, np.random.default_rng(seed), times
    )
    bounds = _joint_bounds(strengths, drawn, times, groups, policies - 1)
    # (2 - 1) / (2 + 1) is the covariate of an answer twice as long as the other.
    third = [None if x is None else x / 3 for x in bounds[-1]] if length else None
    return Ranking(
        (
            IntervalEstimate(0.0, 0.0, 0.0),
            *(IntervalEstimate(*bound) for bound in bounds[: policies - 1]),
        ),
        None if third is None else IntervalEstimate(*third),  # type: ignore[arg-type]
        groups,
        len(rounds),
    )


def _design_matrix(
    policies: int, rounds: Sequence[Round], length: bool
) -> tuple[Array, Array, Array, int]:
    """Return (design, values, group of each round, number of groups)."""
    import numpy as np

    design = np.zeros((len(rounds), policies - 1 + length))
    for row, duel in enumerate(rounds):
        if duel.first:
            design[row, duel.first - 1] += 1
        if duel.second:
            design[row, duel.second - 1] -= 1
        if length:
            design[row, -1] = duel.longer
    places = {name: i for i, name in enumerate(dict.fromkeys(duel.group for duel in rounds))}
    cluster = np.array([places[duel.group] for duel in rounds])
    return design, np.array([duel.value for duel in rounds]), cluster, len(places)


def _fit_strengths(
    design: Array, value: Array, weight: Array, start: Array | None = None
) -> Array | None:
    """Return the maximum of the likelihood; None if it is not finite or not unique."""
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


def _bootstrap_strengths(
    design: Array, value: Array, cluster: Array, groups: int, strengths: Array, rng: Any, times: int
) -> list[Array]:
    """Return the strengths of each bootstrap sample of groups that has finite ones."""
    import numpy as np

    out = []
    for _ in range(times if groups > 1 else 0):
        counts = np.bincount(rng.integers(groups, size=groups), minlength=groups)
        again = _fit_strengths(design, value, counts[cluster].astype(float), strengths)
        if again is not None:
            out.append(again)
    return out


def _joint_bounds(
    strengths: Array, drawn: list[Array], times: int, groups: int, together: int
) -> list[tuple[float, float | None, float | None]]:
    """Return (value, low, high) of each number: the first `together` intervals are simultaneous,
    the others pointwise."""
    import numpy as np

    if groups < 3 or len(drawn) < (1 - MOST_LOST) * times or len(drawn) < 2:
        return [(float(x), None, None) for x in strengths]
    apart = np.array(drawn) - strengths
    error = np.sqrt((apart**2).mean(axis=0) * groups / (groups - 1))
    if not (error > 0).all():
        return [(float(x), None, None) for x in strengths]
    wider = t_critical(groups - 1, LEVEL) / t_critical(10**6, LEVEL)
    largest = (np.abs(apart[:, :together]) / error[:together]).max(axis=1)
    joint = float(np.quantile(largest, LEVEL, method="higher")) * wider
    margins = [
        joint if k < together else t_critical(groups - 1, LEVEL) for k in range(len(strengths))
    ]
    return [
        (float(x), float(x - m * e), float(x + m * e))
        for x, m, e in zip(strengths, margins, error, strict=True)
    ]
