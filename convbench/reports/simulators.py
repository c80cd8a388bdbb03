"""How far a difference between policies depends on the simulated human.

d and e are a policy's differences to Base with the one human and the other, paired over the same
question, sample and temperature in all four runs. (d + e) / 2 is their mean; the *share* is
(d - e) / (d + e): d is the mean times 1 + share, e the mean times 1 - share. Beyond 1 (100 %) the
differences have opposite signs; if their intervals lie on opposite sides of 0, there is no win.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter
from typing import Literal

from convbench.reports.measures import ACCURACY, Measure, judge_measures, paired_values
from convbench.reports.policies import Policy, judge_spec
from convbench.reports.sections import Section, policy_identity
from convbench.stats.means import Estimate, estimate_mean, interval_side
from convbench.stats.ppi import Ratio, ratio_of_means

SimulatorOutcome = Literal["better with both", "worse with both", "flips", "undetermined"]
"""Outcome for a policy and Base: a win only if both intervals lie on one side of 0, a flip only if
they lie on opposite sides. Signs alone would flip by chance, in half of the cases in which one of
the differences is 0."""


@dataclass(frozen=True)
class SimulatorDifference:
    """One policy against Base with two simulated humans, by one measure, in the unit shown."""

    policy: str
    measure: Measure
    first: Estimate
    second: Estimate
    contrast: Estimate
    """The first difference minus the second."""
    share: Ratio
    """The simulator's share, as in the module's docstring."""

    @property
    def outcome(self) -> SimulatorOutcome:
        """Return "better with both" or "worse with both" if both 95% intervals lie on one side of
        0, "flips" if they lie on opposite sides.

        Return "undetermined" if one of them contains 0 or is missing.
        """
        sides = {interval_side(self.first.interval), interval_side(self.second.interval)}
        if 0 in sides:
            return "undetermined"
        if len(sides) == 2:
            return "flips"
        return "better with both" if sides == {1} else "worse with both"


@dataclass(frozen=True)
class SimulatorPair:
    """Two sections that differ only in their simulated human."""

    first: Section
    second: Section
    rows: tuple[SimulatorDifference, ...]


def simulator_pairs(sections: Sequence[Section]) -> list[SimulatorPair]:
    """Return every two sections that differ only in their simulated human and have a policy that
    both measured on the same units.

    Rows have the differences to the baseline by accuracy and by each common judge's headline. Empty
    if there is no such pair.
    """
    pairs_of_sections = []
    for first, second in combinations(sections, 2):
        rows = tuple(_difference_rows(first, second)) if differ_in_simulator(first, second) else ()
        if rows:
            pairs_of_sections.append(SimulatorPair(first, second, rows))
    return pairs_of_sections


SETTING = attrgetter("task", "mode", "protocol", "turns", "split")


def differ_in_simulator(section: Section, other: Section) -> bool:
    """Return True if two sections differ only in their simulated human.

    False if the first has no name for it, which sections have only if another one differs.
    """
    same = SETTING(section) == SETTING(other)
    return same and bool(section.simulator) and section.simulator != other.simulator


def simulator_siblings(section: Section, sections: Sequence[Section]) -> list[Section]:
    """Return the sections that differ from this one only in their simulated human, in their order;
    empty if none does."""
    return [other for other in sections if differ_in_simulator(section, other)]


def flip_reason(
    section: Section, others: Sequence[Section], policy: str, judge: str | None
) -> str | None:
    """Return a clause on why a policy is no winner over the baseline; None if no other simulated
    human reverses the ranking.

    A reversal needs intervals on opposite sides of 0, by accuracy or by this judge's headline;
    without `judge` only accuracy counts. Only the first reversal is named.
    """
    for other in others:
        for row in _difference_rows(section, other, (judge,) if judge else ()):
            if row.policy == policy and row.outcome == "flips":
                return (
                    f"{row.measure.head} ranks it the other way with simulator {other.simulator} "
                    f"({row.first.mean:+.{row.measure.digits}f} here, "
                    f"{row.second.mean:+.{row.measure.digits}f} there)"
                )
    return None


def _difference_rows(
    section: Section, other: Section, judges: Sequence[str] | None = None
) -> Iterator[SimulatorDifference]:
    base, other_base = section.baseline, other.baseline
    if base is None or other_base is None or base.name != other_base.name:
        return
    named = {policy.name: policy for policy in other.policies}
    shared = [
        name
        for name in section.judges
        if name in other.judges
        and judges in (None, (name,))
        and base.fingerprints(name) == other_base.fingerprints(name)
    ]
    for policy in section.policies:
        if policy is base or policy.name not in named or _other_weights(policy, named[policy.name]):
            continue
        for measure in _shared_measures((base, policy), shared):
            row = _simulator_difference(measure, (base, policy), (other_base, named[policy.name]))
            if row is not None:
                yield row


def _shared_measures(policies: tuple[Policy, Policy], judges: Sequence[str]) -> Iterator[Measure]:
    """Yield accuracy and the judges' headlines."""
    yield ACCURACY
    for judge in judges:
        spec = judge_spec(policies, judge)
        if spec is None or not spec.is_relative:
            measures = judge_measures(policies, judge)
            yield from [m for m in measures if m.headline] or measures[-1:]


def _other_weights(first: Policy, second: Policy) -> bool:
    """Return True if two policies of one name have other weights: each trained with its human."""
    return policy_identity(first.run.manifest) != policy_identity(second.run.manifest)


def _simulator_difference(
    measure: Measure, first: tuple[Policy, Policy], second: tuple[Policy, Policy]
) -> SimulatorDifference | None:
    first_values = {row.unit: (row.group, b - a) for row, a, b in paired_values(*first, measure)}
    second_values = {row.unit: b - a for row, a, b in paired_values(*second, measure)}
    scale = measure.scale
    both = [
        (g, d * scale, second_values[u] * scale)
        for u, (g, d) in first_values.items()
        if u in second_values
    ]
    if not both:
        return None
    ones = estimate_mean((g, d) for g, d, _ in both)
    twos = estimate_mean((g, e) for g, _, e in both)
    contrast = estimate_mean((g, d - e) for g, d, e in both)
    share = ratio_of_means((g, d - e, d + e) for g, d, e in both)
    assert ones is not None
    assert twos is not None
    assert contrast is not None
    assert share is not None
    return SimulatorDifference(first[1].name, measure, ones, twos, contrast, share)
