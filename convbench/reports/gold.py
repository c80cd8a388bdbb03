"""People's labels for a section's policies: corrected means, differences, transport check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from convbench.judges.gold.labels import GoldLabels, gold_of
from convbench.reports.measures import verdict_score
from convbench.reports.policies import Observation, Policy, judge_spec
from convbench.reports.sections import Section
from convbench.reports.simulators import flip_reason
from convbench.schema import JudgeSpec
from convbench.stats.means import Estimate, estimate_mean, interval_side
from convbench.stats.ppi import (
    FEW,
    CorrectedMean,
    ScoredUnit,
    TransportResult,
    bias_units,
    check_transport,
    corrected_difference,
    corrected_mean,
    have_enough_labels,
)

Winner = Literal["better", "worse", "undetermined"]


@dataclass(frozen=True)
class GoldRow:
    """One policy on one metric."""

    policy: str
    metric: str
    raw: Estimate | None
    """The judge's own mean."""
    corrected: CorrectedMean | None
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
    check: TransportResult | None
    """Check that the labels of one policy hold for the other; None if both have enough labels."""
    flips: str | None = None
    """Reason not to name a winner: another simulated human reverses the ranking."""

    @property
    def winner(self) -> Winner:
        """Return "better" or "worse" than Base if the 95% interval of the corrected difference lies
        above or below 0.

        Return "undetermined" if it contains 0, there is no interval, the transport check did not
        pass, or the ranking flips.
        """
        if self.flips or (self.check is not None and self.check.passed != "PASS"):
            return "undetermined"
        where = 0 if self.corrected is None else interval_side(self.corrected.interval)
        return "better" if where > 0 else "worse" if where < 0 else "undetermined"


@dataclass(frozen=True)
class GoldReport:
    """Results of one judge's scores and people's labels."""

    judge: str
    metric: str
    """The metric that is the reward."""
    spec: JudgeSpec | None
    rows: tuple[GoldRow, ...] = ()
    differences: tuple[GoldDifference, ...] = ()
    gold: Mapping[str, GoldLabels] = field(default_factory=dict)
    """Labels by policy name. Policies of one family share them."""

    @property
    def sparsely_labelled(self) -> list[str]:
        """Return the names of policies with at least one label of the reward's metric, but fewer
        than 40."""
        rows = [row for row in self.rows if row.metric == self.metric]
        return [row.policy for row in rows if 0 < row.labels < FEW]


def gold_report(
    section: Section, judge: str, sibling_sections: Sequence[Section] = ()
) -> GoldReport | None:
    """Return the results of people's labels for a judge; None if no conversations were drawn for
    it.

    `rows` has every policy on the judge's headline metric, then on every other labelled metric.
    `differences` has every other policy against Base on the headline, and is empty without Base.
    `sibling_sections` differ only in their simulated human; a policy that one of them ranks the
    other way is no winner.
    """
    spec = judge_spec(section.policies, judge)
    metric = spec.headline_metric if spec is not None else "overall"
    gold = {p.name: gold_for(p, judge) for p in section.policies}
    if not any(item.drawn for item in gold.values()):
        return None
    names = dict.fromkeys(
        name for item in gold.values() for scores in item.scores.values() for name in scores
    )
    rows = tuple(
        _gold_row(policy, judge, gold[policy.name], name)
        for name in (metric, *(n for n in names if n != metric))
        for policy in section.policies
    )
    differences = tuple(
        replace(item, flips=flip_reason(section, sibling_sections, item.policy, judge))
        for item in _differences_to_base(section, judge, gold, spec)
    )
    return GoldReport(judge, metric, spec, rows, differences, gold)


def gold_for(policy: Policy, judge: str) -> GoldLabels:
    """Return people's labels in the policy's family for a judge, for the first fingerprint of its
    verdicts.

    The result is empty if the judge has no verdict on this policy or nothing was drawn.
    """
    marks = policy.fingerprints(judge)
    return gold_of(policy.run, marks[0]) if marks else GoldLabels()


def _gold_row(policy: Policy, judge: str, gold: GoldLabels, metric: str) -> GoldRow:
    units = list(units_of(policy, judge, gold, metric))
    raw = estimate_mean((u.group, u.judge) for u in units)
    labelled = sum(u.is_labelled for u in units)
    return GoldRow(policy.name, metric, raw, corrected_mean(units), labelled)


def units_of(policy: Policy, judge: str, gold: GoldLabels, metric: str) -> Iterator[ScoredUnit]:
    """Yield a unit for each conversation with a score of the judge on this metric, else with a
    reward.

    A conversation without a label has gold None; one that was not drawn has weight 0.
    """
    for row in policy.observations:
        unit = _gold_unit(row, judge, gold, metric)
        if unit is not None:
            yield unit


def _gold_unit(row: Observation, judge: str, gold: GoldLabels, metric: str) -> ScoredUnit | None:
    judge_score = verdict_score(row, judge, metric)
    if judge_score is None:
        return None
    label = gold.scores.get(row.conversation_id, {}).get(metric)
    return ScoredUnit(row.group, judge_score, label, gold.weights.get(row.conversation_id, 0.0))


def paired_units(
    base: Policy, other: Policy, judge: str, gold: Mapping[str, GoldLabels], metric: str
) -> tuple[list[ScoredUnit], list[ScoredUnit]]:
    """Return two lists of units of equal length, Base's and the other policy's, paired by question,
    sample and temperature.

    Only pairs with a score of the judge in both policies are in them, in Base's order. They need no
    labels.
    """
    first = {row.unit: _gold_unit(row, judge, gold[base.name], metric) for row in base.observations}
    second = {
        row.unit: _gold_unit(row, judge, gold[other.name], metric) for row in other.observations
    }
    a, b = [], []
    for key, unit in first.items():
        other_unit = second.get(key)
        if unit is not None and other_unit is not None:
            a.append(unit)
            b.append(other_unit)
    return a, b


def _differences_to_base(
    section: Section, judge: str, gold: Mapping[str, GoldLabels], spec: JudgeSpec | None
) -> Iterator[GoldDifference]:
    base = section.base
    if base is None:
        return
    metric = spec.headline_metric if spec is not None else "overall"
    for policy in section.policies:
        if policy is not base:
            a, b = paired_units(base, policy, judge, gold, metric)
            yield gold_difference(policy.name, a, b, scale_width(spec, metric))


def scale_width(spec: JudgeSpec | None, metric: str) -> float:
    """Return the width of a metric's scale; 1 without a spec."""
    low, high = (0.0, 1.0) if spec is None else spec.score_limits(metric)
    return high - low


def gold_difference(
    name: str, a: list[ScoredUnit], b: list[ScoredUnit], scale: float
) -> GoldDifference:
    """Return the difference of a policy (`b`) minus Base (`a`): the judge's, the one corrected by
    labels, and the judge's bias.

    The corrected ones are None if either policy has labels of fewer than three groups. `check` is
    None if both policies have 40 labels or more. `scale` is the width of the judge's scale. Raise
    ValueError for lists of unequal length.
    """
    pairs = zip(a, b, strict=True)
    raw = estimate_mean(
        (base_unit.group, policy_unit.judge - base_unit.judge) for base_unit, policy_unit in pairs
    )
    check = None if have_enough_labels(a, b) else check_transport(*_more_first(a, b), scale)
    return GoldDifference(
        name,
        raw,
        corrected_difference(a, b),
        corrected_difference(bias_units(a), bias_units(b), tuned=False),
        check,
    )


def _more_first(
    a: list[ScoredUnit], b: list[ScoredUnit]
) -> tuple[list[ScoredUnit], list[ScoredUnit]]:
    """Return the pair with the policy that has more labels first: its labels must transport."""
    more = sum(u.is_labelled for u in a) >= sum(u.is_labelled for u in b)
    return (a, b) if more else (b, a)
