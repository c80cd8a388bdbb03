"""Measures of a conversation, and paired differences between policies on the same questions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from convbench.judges.kinds import kind_of
from convbench.reports.policies import Observation, Policy, judge_spec
from convbench.reports.sections import Section
from convbench.schema import JudgeSpec
from convbench.stats.means import (
    ErrorKind,
    Estimate,
    McNemar,
    estimate_mean,
    holm_adjusted,
    mcnemar,
)

HEADS = {
    "overall": ("R Overall", "R Over."),
    "accuracy": ("R Accuracy", "R Acc."),
    "reasoning": ("R Reasoning", "R Reas."),
    "comprehensiveness": ("R Comprehensive", "R Compr."),
    "pedagogical": ("R Pedagogic", "R Pedag."),
    "confidence": ("R Confidence", "R Conf."),
}
"""Column heads of the rubric's metrics, long and short, in the order of the paper's tables."""
PAPER_LABELS = {
    "overall": ("overall", "reward"),
    "accuracy": ("accuracy",),
    "reasoning": ("reasoning ability",),
    "comprehensiveness": ("comprehensiveness",),
    "pedagogical": ("pedagogical value",),
    "confidence": ("confidence calibration",),
}
"""Labels of the paper's metrics. A metric of the same name with another label gets its own head.
(`reward` is the label of imported rewards.)"""


@dataclass(frozen=True)
class Measure:
    """One column of a table: a number for each conversation, None if it has none."""

    key: str
    head: str
    short: str
    digits: int
    value: Callable[[Observation], float | None]
    scale: float = 1.0
    """Factor from the number to what is shown."""
    unit: str = ""
    """Unit of the shown number, for axes."""
    limits: tuple[float, float] | None = None
    """Smallest and largest possible number, as shown."""
    headline: bool = False
    """Whether this is the judge's main metric."""
    ranked: bool = True
    """Whether the largest is best."""

    def mean_of(self, policy: Policy, kind: ErrorKind = "clustered") -> Estimate | None:
        """Return the mean over the policy's conversations that have the number, times the measure's
        scale, with the error of this kind.

        None if no conversation has the number.
        """
        return self.mean_over(policy.observations, kind)

    def mean_over(
        self, rows: Iterable[Observation], kind: ErrorKind = "clustered"
    ) -> Estimate | None:
        """Return the mean over the rows that have the number, times the measure's scale, with the
        error of this kind; None if none has it."""
        values = ((row.group, self.value(row)) for row in rows)
        return estimate_mean(
            ((group, value * self.scale) for group, value in values if value is not None), kind
        )


def _as_float(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _unread_share(row: Observation) -> float | None:
    return None if row.correct is None else float(row.unparsed)


ACCURACY = Measure(
    "accuracy",
    "Accuracy",
    "Accuracy",
    4,
    lambda row: _as_float(row.correct),
    unit="share correct",
    limits=(0.0, 1.0),
)
UNREAD = Measure(
    "unread_pct",
    "Unread (%)",
    "Unread %",
    1,
    _unread_share,
    100.0,
    unit="% of conversations",
    limits=(0.0, 100.0),
    ranked=False,
)
"""Answers that could not be read, which count as wrong. If their share falls, part of a gain in
accuracy may come from the answers' form."""
THINKING = Measure(
    "thinking_pct",
    "Thinking (%)",
    "Think %",
    1,
    lambda row: _as_float(row.thinking),
    100.0,
    unit="% of conversations",
    limits=(0.0, 100.0),
)
REASONED = Measure(
    "reasoned_pct",
    "Reasoned (%)",
    "Reas. %",
    1,
    lambda row: _as_float(row.reasoned),
    100.0,
    unit="% of conversations",
    limits=(0.0, 100.0),
)
"""Share of conversations with reasoning in a separate channel, not in tags."""


def temperature_order(temperature: float | None) -> tuple[bool, float]:
    """Return a sort key for temperatures: None (not sent) comes last."""
    return temperature is None, temperature or 0.0


def temperature_text(temperature: float | None) -> str:
    """Return a temperature as text; "not sent" for None."""
    return "not sent" if temperature is None else f"{temperature:g}"


def metric_measure(
    judge: str, name: str, label: str | None = None, limits: tuple[float, float] | None = None
) -> Measure:
    """Return the measure of a judge's metric: key `r_NAME`, two digits, value None without a valid
    verdict.

    The head is `R LABEL` with `label`, else the paper's head for its six metrics, else `R NAME`.
    """
    head = short = f"R {label or name}"
    if label is None:
        head, short = HEADS.get(name, (head, short))
    unit = "judge's score" + (f", {limits[0]:g} to {limits[1]:g}" if limits else "")

    def read_score(row: Observation) -> float | None:
        scored = row.verdicts.get(judge)
        return None if scored is None or scored.failed else scored.scores.get(name)

    return Measure(f"r_{name}", head, short, 2, read_score, unit=unit, limits=limits)


def verdict_score(row: Observation, judge: str, metric: str) -> float | None:
    """Return a judge's score of one conversation by a metric, else its reward; None if it failed
    or there is none."""
    scored = row.verdicts.get(judge)
    return None if scored is None or scored.failed else scored.scores.get(metric, scored.reward)


def reward_measure(judge: str) -> Measure:
    """Return the measure of a judge's reward: key `reward`, three digits, value None without a
    valid verdict."""

    def read_reward(row: Observation) -> float | None:
        scored = row.verdicts.get(judge)
        return None if scored is None or scored.failed else scored.reward

    return Measure("reward", "Reward", "Reward", 3, read_reward, unit="reward")


def judge_measures(policies: Sequence[Policy], judge: str) -> list[Measure]:
    """Return a judge's measures: the headline, the paper's metrics in the paper's order, then its
    others, in the order and with the labels of its own rubric. Empty if it has no verdict.

    Only metrics with a score in some verdict are listed. The reward comes last, unless it is the
    headline score times a constant; it is listed e.g. if it is discounted, comes from another
    metric, or is all there is (imported rewards).
    """
    names: set[str] = set()
    has_verdicts = False
    for row in (row for policy in policies for row in policy.observations if judge in row.verdicts):
        has_verdicts = True
        names.update(row.verdicts[judge].scores)
    spec = judge_spec(policies, judge)
    labels = {} if spec is None else _metric_labels(spec)
    top = "overall" if spec is None else spec.headline_metric
    paper = (name for name in HEADS if name not in labels)
    order = dict.fromkeys((top, *paper, *labels, *sorted(names)))
    listed = [name for name in order if name in names]
    measures = [
        replace(
            metric_measure(
                judge, name, labels.get(name), None if spec is None else spec.score_limits(name)
            ),
            headline=name == top,
        )
        for name in listed
    ]
    if not listed or _reward_differs(policies, judge, top):
        measures.append(reward_measure(judge))
    return measures if has_verdicts else []


LONGEST = 20
"""Most characters of a label used as a column head."""


def _metric_labels(spec: JudgeSpec) -> dict[str, str]:
    """Return the labels that replace the paper's heads, by metric, in the rubric's order."""
    paper = PAPER_LABELS if kind_of(spec).measures == "talk" else {}
    return {
        name: label if len(label) <= LONGEST else name.capitalize()
        for name, label in spec.score_labels.items()
        if label.lower() not in paper.get(name, ())
    }


def _reward_differs(policies: Sequence[Policy], judge: str, headline: str) -> bool:
    """Return True if the reward is not the headline score times a constant."""
    ratios = set()
    for policy in policies:
        for row in policy.observations:
            scored = row.verdicts.get(judge)
            if scored is None or scored.failed or scored.reward is None:
                continue
            top = scored.scores.get(headline)
            if top is None or (top == 0) != (scored.reward == 0):
                return True
            if top:
                ratios.add(round(scored.reward / top, 9))
    return len(ratios) > 1


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The paired difference of one policy to the baseline, in the unit shown."""

    name: str
    estimate: Estimate | None
    """None if there is no pair."""
    adjusted: float | None = None
    """p of no difference, adjusted by Holm over the section's policies."""

    @property
    def n(self) -> int:
        """Return the number of pairs; 0 if there is no estimate."""
        return self.estimate.n if self.estimate else 0


@dataclass(frozen=True, slots=True)
class AtTemperature:
    """McNemar's test of one policy against the baseline at one temperature."""

    counts: McNemar
    clustered: bool
    """Whether a group has several of the pairs."""
    adjusted: float | None = None


def paired_values(
    base: Policy, other: Policy, measure: Measure
) -> Iterator[tuple[Observation, float, float]]:
    """Yield (the other's row, Base's value, the other's value) for every question, sample and
    temperature at which both have a value.

    The order is that of the other policy's rows. Values are not multiplied by the measure's scale.
    """
    before = {row.unit: measure.value(row) for row in base.observations}
    for row in other.observations:
        first, second = before.get(row.unit), measure.value(row)
        if first is not None and second is not None:
            yield row, first, second


def paired_differences(
    section: Section, measure: Measure, kind: ErrorKind = "clustered"
) -> list[PairedDifference]:
    """Return every other policy's value minus the baseline's, paired, in the unit shown, in the
    order of the section.

    p is adjusted by Holm over the policies. A policy without a pair has estimate None. Empty
    without a baseline.
    """
    base = section.baseline
    if base is None:
        return []
    differences = []
    for policy in section.policies:
        if policy is not base:
            values = (
                (row.group, (second - first) * measure.scale)
                for row, first, second in paired_values(base, policy, measure)
            )
            differences.append(PairedDifference(policy.name, estimate_mean(values, kind)))
    adjusted = holm_adjusted([item.estimate.p if item.estimate else None for item in differences])
    return [replace(item, adjusted=p) for item, p in zip(differences, adjusted, strict=True)]


def temperature_tests(section: Section) -> dict[tuple[str, float | None], AtTemperature]:
    """Return McNemar's test of accuracy against the baseline by (policy name, temperature).

    Only temperatures with a pair are keys. p is adjusted by Holm over the policies at each
    temperature. Empty without a baseline.
    """
    base = section.baseline
    if base is None:
        return {}
    tests: dict[tuple[str, float | None], AtTemperature] = {}
    for policy in section.policies:
        if policy is not base:
            both = list(paired_values(base, policy, ACCURACY))
            for temperature in sorted(
                {row.temperature for row, _, _ in both}, key=temperature_order
            ):
                at = [item for item in both if item[0].temperature == temperature]
                groups = Counter(row.group for row, _, _ in at)
                counts = mcnemar((first > 0, second > 0) for _, first, second in at)
                tests[policy.name, temperature] = AtTemperature(counts, max(groups.values()) > 1)
    return _adjust_by_holm(tests)


def _adjust_by_holm(
    tests: dict[tuple[str, float | None], AtTemperature],
) -> dict[tuple[str, float | None], AtTemperature]:
    out = dict(tests)
    for temperature in {key[1] for key in tests}:
        keys = [key for key in tests if key[1] == temperature]
        for key, p in zip(keys, holm_adjusted([tests[key].counts.p for key in keys]), strict=True):
            out[key] = replace(tests[key], adjusted=p)
    return out
