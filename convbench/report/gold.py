"""People's labels for a section's policies: corrected means, differences, transport check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from convbench.judge.gold.labels import Gold, gold_of
from convbench.report.policies import Policy, judge_spec
from convbench.report.rows import Observation, Scored
from convbench.report.sections import Section
from convbench.report.simulators import flipped
from convbench.schema import JudgeSpec
from convbench.stats.means import Estimate, estimate, side
from convbench.stats.ppi import (
    FEW,
    Corrected,
    Transport,
    Unit,
    corrected,
    difference,
    enough,
    transport,
)

Winner = Literal["better", "worse", "not told"]


@dataclass(frozen=True)
class GoldRow:
    """One policy on one metric."""

    policy: str
    metric: str
    raw: Estimate | None
    """The judge's own mean."""
    found: Corrected | None
    """The mean corrected by people's labels; None if fewer than three groups have labels."""
    labels: int


@dataclass(frozen=True)
class GoldDifference:
    """One policy minus Base on the metric that is the reward."""

    policy: str
    raw: Estimate | None
    corrected: Estimate | None
    """The difference corrected by people's labels; None if either policy has too few."""
    bias: Estimate | None
    """How much more the judge overrates this policy than Base."""
    check: Transport | None
    """Check that the labels of one policy hold for the other; None if both have enough labels."""
    flips: str | None = None
    """Reason not to name a winner: another simulated human reverses the ranking."""

    @property
    def winner(self) -> Winner:
        """Return whether the policy is better or worse than Base; "not told" if the check failed,
        the ranking flips, or the interval contains 0."""
        if self.flips or (self.check is not None and self.check.passed != "PASS"):
            return "not told"
        where = 0 if self.corrected is None else side(self.corrected.interval)
        return "better" if where > 0 else "worse" if where < 0 else "not told"


@dataclass(frozen=True)
class GoldReport:
    """Results of one judge's scores and people's labels."""

    judge: str
    metric: str
    """The metric that is the reward."""
    spec: JudgeSpec | None
    rows: tuple[GoldRow, ...] = ()
    differences: tuple[GoldDifference, ...] = ()
    gold: Mapping[str, Gold] = field(default_factory=dict)
    """Labels by policy name. Policies of one family share them."""

    @property
    def few(self) -> list[str]:
        """Return the names of policies that have labels, but fewer than FEW."""
        rows = [row for row in self.rows if row.metric == self.metric]
        return [row.policy for row in rows if 0 < row.labels < FEW]


def gold_report(section: Section, judge: str, beside: Sequence[Section] = ()) -> GoldReport | None:
    """Return the results of people's labels for a judge; None if no conversations were drawn for
    it. The other sections differ only in their simulated human: a policy that one of them ranks
    the other way is no winner."""
    spec = judge_spec(section.policies, judge)
    metric = spec.headline if spec is not None else "overall"
    gold = {p.name: gold_for(p, judge) for p in section.policies}
    if not any(one.drawn for one in gold.values()):
        return None
    names = dict.fromkeys(
        name for one in gold.values() for scores in one.scores.values() for name in scores
    )
    rows = tuple(
        _row(policy, judge, gold[policy.name], name)
        for name in (metric, *(n for n in names if n != metric))
        for policy in section.policies
    )
    differences = tuple(
        replace(one, flips=flipped(section, beside, one.policy, judge))
        for one in _all(section, judge, gold, spec)
    )
    return GoldReport(judge, metric, spec, rows, differences, gold)


def gold_for(policy: Policy, judge: str) -> Gold:
    """Return the gold labels for a judge in a policy's family; empty if there are none."""
    marks = policy.fingerprints(judge)
    return gold_of(policy.run, marks[0]) if marks else Gold()


def _row(policy: Policy, judge: str, gold: Gold, metric: str) -> GoldRow:
    units = list(units_of(policy, judge, gold, metric))
    raw = estimate((u.group, u.judge) for u in units)
    labelled = sum(u.labelled for u in units)
    return GoldRow(policy.name, metric, raw, corrected(units), labelled)


def units_of(policy: Policy, judge: str, gold: Gold, metric: str) -> Iterator[Unit]:
    """Yield a unit for each conversation that the judge scored."""
    for row in policy.rows:
        unit = _unit(row, judge, gold, metric)
        if unit is not None:
            yield unit


def _unit(row: Observation, judge: str, gold: Gold, metric: str) -> Unit | None:
    scored = row.verdicts.get(judge)
    said = None if scored is None or scored.failed else _score(scored, metric)
    if said is None:
        return None
    label = gold.scores.get(row.talk, {}).get(metric)
    return Unit(row.group, said, label, gold.weights.get(row.talk, 0.0))


def _score(scored: Scored, metric: str) -> float | None:
    return scored.scores.get(metric, scored.reward)


def both(
    base: Policy, other: Policy, judge: str, gold: Mapping[str, Gold], metric: str
) -> tuple[list[Unit], list[Unit]]:
    """Return two lists of units of equal length: two policies on the same questions, samples and
    temperatures."""
    first = {row.unit: _unit(row, judge, gold[base.name], metric) for row in base.rows}
    second = {row.unit: _unit(row, judge, gold[other.name], metric) for row in other.rows}
    a, b = [], []
    for place, unit in first.items():
        beside = second.get(place)
        if unit is not None and beside is not None:
            a.append(unit)
            b.append(beside)
    return a, b


def _all(
    section: Section, judge: str, gold: Mapping[str, Gold], spec: JudgeSpec | None
) -> Iterator[GoldDifference]:
    base = section.base
    if base is None:
        return
    metric = spec.headline if spec is not None else "overall"
    limits = spec.limits(metric) if spec is not None else (0.0, 1.0)
    scale = limits[1] - limits[0]
    for policy in section.policies:
        if policy is not base:
            a, b = both(base, policy, judge, gold, metric)
            yield compare(policy.name, a, b, scale)


def compare(name: str, a: list[Unit], b: list[Unit], scale: float) -> GoldDifference:
    """Return the difference of a policy (`b`) to Base (`a`). The lists are paired by position;
    `scale` is the width of the judge's scale."""
    pairs = zip(a, b, strict=True)
    raw = estimate((one.group, two.judge - one.judge) for one, two in pairs)
    check = None if enough(a, b) else transport(*_more_first(a, b), scale)
    return GoldDifference(
        name, raw, difference(a, b), difference(_biases(a), _biases(b), tuned=False), check
    )


def _more_first(a: list[Unit], b: list[Unit]) -> tuple[list[Unit], list[Unit]]:
    """Return the pair with the policy that has more labels first: its labels must transport."""
    more = sum(u.labelled for u in a) >= sum(u.labelled for u in b)
    return (a, b) if more else (b, a)


def _biases(units: list[Unit]) -> list[Unit]:
    return [
        Unit(u.group, 0.0, u.judge - u.gold, u.weight)
        for u in units
        if u.labelled and u.gold is not None
    ]
