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
from typing import Literal

from convbench.report.humans import same
from convbench.report.measures import ACCURACY, Measure, judge_measures, pairs
from convbench.report.policies import Policy, judge_spec
from convbench.report.sections import Section
from convbench.stats.means import Estimate, estimate, side
from convbench.stats.ppi import Ratio, ratio

Said = Literal["better with both", "worse with both", "flips", "not told"]
"""Outcome for a policy and Base: a win only if both intervals lie on one side of 0, a flip only if
they lie on opposite sides. Signs alone would flip by chance, in half of the cases in which one of
the differences is 0."""


@dataclass(frozen=True)
class Apart:
    """One policy against Base with two simulated humans, by one measure, in the unit shown."""

    policy: str
    measure: Measure
    first: Estimate
    second: Estimate
    apart: Estimate
    """The first difference minus the second."""
    share: Ratio
    """The simulator's share, as in the module's docstring."""

    @property
    def said(self) -> Said:
        """Return the outcome, from the sides of 0 on which both intervals lie."""
        sides = {side(self.first.interval), side(self.second.interval)}
        if 0 in sides:
            return "not told"
        if len(sides) == 2:
            return "flips"
        return "better with both" if sides == {1} else "worse with both"


@dataclass(frozen=True)
class TwoSimulators:
    """Two sections that differ only in their simulated human."""

    one: Section
    other: Section
    rows: tuple[Apart, ...]


def two_simulators(sections: Sequence[Section]) -> list[TwoSimulators]:
    """Return every two sections that differ only in their simulated human and share policies."""
    found = []
    for one, other in combinations(sections, 2):
        rows = tuple(_rows(one, other)) if alike(one, other) else ()
        if rows:
            found.append(TwoSimulators(one, other, rows))
    return found


def alike(one: Section, other: Section) -> bool:
    """Return True if two sections differ only in their simulated human."""
    first = (one.task, one.mode, one.protocol, one.turns, one.split, one.regime)
    second = (other.task, other.mode, other.protocol, other.turns, other.split, other.regime)
    return first == second and bool(one.simulator) and one.simulator != other.simulator


def siblings(section: Section, sections: Sequence[Section]) -> list[Section]:
    """Return the sections that differ from this one only in their simulated human."""
    return [other for other in sections if alike(section, other)]


def flipped(
    section: Section, others: Sequence[Section], policy: str, judge: str | None
) -> str | None:
    """Return why a policy is no winner over Base: another simulated human reverses the ranking, by
    accuracy or by this judge's headline. None if none does."""
    for other in others:
        for row in _rows(section, other, (judge,) if judge else ()):
            if row.policy == policy and row.said == "flips":
                return (
                    f"{row.measure.head} ranks it the other way with simulator {other.simulator} "
                    f"({row.first.mean:+.{row.measure.digits}f} here, "
                    f"{row.second.mean:+.{row.measure.digits}f} there)"
                )
    return None


def _rows(one: Section, other: Section, judges: Sequence[str] | None = None) -> Iterator[Apart]:
    base, beside = one.baseline, other.baseline
    if base is None or beside is None or base.name != beside.name:
        return
    named = {policy.name: policy for policy in other.policies}
    shared = [
        name
        for name in one.judges
        if name in other.judges
        and judges in (None, (name,))
        and base.fingerprints(name) == beside.fingerprints(name)
    ]
    for policy in one.policies:
        if policy is base or policy.name not in named or _other(policy, named[policy.name]):
            continue
        for measure in _measures((base, policy), shared):
            row = _apart(measure, (base, policy), (beside, named[policy.name]))
            if row is not None:
                yield row


def _measures(policies: tuple[Policy, Policy], judges: Sequence[str]) -> Iterator[Measure]:
    """Yield accuracy and the judges' headlines."""
    yield ACCURACY
    for judge in judges:
        spec = judge_spec(policies, judge)
        if spec is None or not spec.relative:
            found = judge_measures(policies, judge)
            yield from [m for m in found if m.headline] or found[-1:]


def _other(one: Policy, two: Policy) -> bool:
    """Return True if two policies of one name have other weights: each trained with its human."""
    return same(one.run.manifest) != same(two.run.manifest)


def _apart(
    measure: Measure, first: tuple[Policy, Policy], second: tuple[Policy, Policy]
) -> Apart | None:
    here = {row.unit: (row.group, b - a) for row, a, b in pairs(*first, measure)}
    there = {row.unit: b - a for row, a, b in pairs(*second, measure)}
    scale = measure.scale
    both = [(g, d * scale, there[u] * scale) for u, (g, d) in here.items() if u in there]
    if not both:
        return None
    ones = estimate((g, d) for g, d, _ in both)
    twos = estimate((g, e) for g, _, e in both)
    apart = estimate((g, d - e) for g, d, e in both)
    share = ratio((g, d - e, d + e) for g, d, e in both)
    assert ones is not None
    assert twos is not None
    assert apart is not None
    assert share is not None
    return Apart(first[1].name, measure, ones, twos, apart, share)
