"""What is measured of a conversation, and policies against Base, or another, on the same
questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from convbench.judge.kinds import kind_of
from convbench.report.policies import Policy, judge_spec
from convbench.report.rows import Observation
from convbench.report.sections import Section
from convbench.schema import JudgeSpec
from convbench.stats.means import ErrorKind, Estimate, McNemar, estimate, holm, mcnemar

HEADS = {
    "overall": ("R Overall", "R Over."),
    "accuracy": ("R Accuracy", "R Acc."),
    "reasoning": ("R Reasoning", "R Reas."),
    "comprehensiveness": ("R Comprehensive", "R Compr."),
    "pedagogical": ("R Pedagogic", "R Pedag."),
    "confidence": ("R Confidence", "R Conf."),
}
"""Heads of the rubric's metrics as in the paper's tables, in their order."""
PAPER_LABELS = {
    "overall": ("overall", "reward"),
    "accuracy": ("accuracy",),
    "reasoning": ("reasoning ability",),
    "comprehensiveness": ("comprehensiveness",),
    "pedagogical": ("pedagogical value",),
    "confidence": ("confidence calibration",),
}
"""What the paper's metrics are labelled; another rubric's of such a name has a head of its own.
(`reward` is what imported rewards are labelled.)"""


@dataclass(frozen=True)
class Measure:
    """One column: a number of each conversation, None where it has none."""

    key: str
    head: str
    short: str
    digits: int
    value: Callable[[Observation], float | None]
    scale: float = 1.0
    """What a number is multiplied by to be shown."""
    unit: str = ""
    """Unit of the shown number, for axes."""
    limits: tuple[float, float] | None = None
    """Smallest and largest number there can be, as shown."""
    headline: bool = False
    """Whether a judge is read by this one."""
    ranked: bool = True
    """Whether the largest is best."""

    def of(self, policy: Policy, kind: ErrorKind = "clustered") -> Estimate | None:
        """Return the policy's mean; None where no conversation has the number."""
        return self.over(policy.rows, kind)

    def over(self, rows: Iterable[Observation], kind: ErrorKind = "clustered") -> Estimate | None:
        """Return the mean over these rows, in the unit shown."""
        found = ((row.group, self.value(row)) for row in rows)
        return estimate(
            ((group, value * self.scale) for group, value in found if value is not None), kind
        )


def _share(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _unread(row: Observation) -> float | None:
    return None if row.correct is None else float(row.unparsed)


ACCURACY = Measure(
    "accuracy",
    "Accuracy",
    "Accuracy",
    4,
    lambda row: _share(row.correct),
    unit="share correct",
    limits=(0.0, 1.0),
)
UNREAD = Measure(
    "unread_pct",
    "Unread (%)",
    "Unread %",
    1,
    _unread,
    100.0,
    unit="% of conversations",
    limits=(0.0, 100.0),
    ranked=False,
)
"""Answers that could not be read, which count as wrong: where they grow fewer, a part of a gain in
accuracy may be the answer's form."""
THINKING = Measure(
    "thinking_pct",
    "Thinking (%)",
    "Think %",
    1,
    lambda row: _share(row.thinking),
    100.0,
    unit="% of conversations",
    limits=(0.0, 100.0),
)
REASONED = Measure(
    "reasoned_pct",
    "Reasoned (%)",
    "Reas. %",
    1,
    lambda row: _share(row.reasoned),
    100.0,
    unit="% of conversations",
    limits=(0.0, 100.0),
)
"""Reasoning in a channel of its own, beside that in tags."""


def by_heat(temperature: float | None) -> tuple[bool, float]:
    """Return a key that sorts temperatures; where none was sent comes last."""
    return temperature is None, temperature or 0.0


def heat(temperature: float | None) -> str:
    """Return a temperature in words."""
    return "not sent" if temperature is None else f"{temperature:g}"


def metric(
    judge: str, name: str, label: str | None = None, limits: tuple[float, float] | None = None
) -> Measure:
    """Return a judge's metric as a column, under its label where it has one of its own."""
    head = short = f"R {label or name}"
    if label is None:
        head, short = HEADS.get(name, (head, short))
    unit = "judge's score" + (f", {limits[0]:g} to {limits[1]:g}" if limits else "")

    def value(row: Observation) -> float | None:
        scored = row.verdicts.get(judge)
        return None if scored is None or scored.failed else scored.scores.get(name)

    return Measure(f"r_{name}", head, short, 2, value, unit=unit, limits=limits)


def reward(judge: str) -> Measure:
    """Return a judge's reward as a column."""

    def value(row: Observation) -> float | None:
        scored = row.verdicts.get(judge)
        return None if scored is None or scored.failed else scored.reward

    return Measure("reward", "Reward", "Reward", 3, value, unit="reward")


def judge_measures(policies: Sequence[Policy], judge: str) -> list[Measure]:
    """Return a judge's columns: those of the paper's rubric in its order, then what else it scores,
    as its own rubric orders and labels it.

    The reward has a column of its own where it is more than the overall score rescaled: where it
    is discounted, taken from another metric, or all there is (imported rewards).
    """
    names: set[str] = set()
    found = False
    for row in (row for policy in policies for row in policy.rows if judge in row.verdicts):
        found = True
        names.update(row.verdicts[judge].scores)
    spec = judge_spec(policies, judge)
    labels = {} if spec is None else _labels(spec)
    top = "overall" if spec is None else spec.headline
    paper = (name for name in HEADS if name not in labels)
    order = dict.fromkeys((top, *paper, *labels, *sorted(names)))
    listed = [name for name in order if name in names]
    measures = [
        replace(
            metric(judge, name, labels.get(name), None if spec is None else spec.limits(name)),
            headline=name == top,
        )
        for name in listed
    ]
    if not listed or _reward_differs(policies, judge, top):
        measures.append(reward(judge))
    return measures if found else []


LONGEST = 20
"""Longest label that heads a column."""


def _labels(spec: JudgeSpec) -> dict[str, str]:
    """Return what heads a metric's column in place of the paper's word, in the rubric's order."""
    paper = PAPER_LABELS if kind_of(spec).measures == "talk" else {}
    return {
        name: label if len(label) <= LONGEST else name.capitalize()
        for name, label in spec.labels.items()
        if label.lower() not in paper.get(name, ())
    }


def _reward_differs(policies: Sequence[Policy], judge: str, headline: str) -> bool:
    """Whether the reward is not the headline score times one constant."""
    ratios = set()
    for policy in policies:
        for row in policy.rows:
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
class Paired:
    """One policy less Base, in the unit that is shown."""

    name: str
    estimate: Estimate | None
    """None without a pair."""
    adjusted: float | None = None
    """p of no difference, adjusted by Holm over the section's policies."""

    @property
    def n(self) -> int:
        """Pairs."""
        return self.estimate.n if self.estimate else 0


@dataclass(frozen=True, slots=True)
class AtTemperature:
    """McNemar's test of one policy against Base at one temperature."""

    counts: McNemar
    clustered: bool
    """Whether some group has several of the pairs."""
    adjusted: float | None = None


def pairs(
    base: Policy, other: Policy, measure: Measure
) -> Iterator[tuple[Observation, float, float]]:
    """Yield (row, Base's number, the other's) for every place where both have a number."""
    before = {row.unit: measure.value(row) for row in base.rows}
    for row in other.rows:
        first, second = before.get(row.unit), measure.value(row)
        if first is not None and second is not None:
            yield row, first, second


def paired(section: Section, measure: Measure, kind: ErrorKind = "clustered") -> list[Paired]:
    """Return every other policy's difference to the section's baseline; nothing without one."""
    base = section.baseline
    if base is None:
        return []
    found = []
    for policy in section.policies:
        if policy is not base:
            values = (
                (row.group, (second - first) * measure.scale)
                for row, first, second in pairs(base, policy, measure)
            )
            found.append(Paired(policy.name, estimate(values, kind)))
    adjusted = holm([item.estimate.p if item.estimate else None for item in found])
    return [replace(item, adjusted=p) for item, p in zip(found, adjusted, strict=True)]


def by_temperature(section: Section) -> dict[tuple[str, float | None], AtTemperature]:
    """Return McNemar's test of accuracy by (policy, temperature)."""
    base = section.baseline
    if base is None:
        return {}
    found: dict[tuple[str, float | None], AtTemperature] = {}
    for policy in section.policies:
        if policy is not base:
            both = list(pairs(base, policy, ACCURACY))
            for temperature in sorted({row.temperature for row, _, _ in both}, key=by_heat):
                at = [item for item in both if item[0].temperature == temperature]
                groups = Counter(row.group for row, _, _ in at)
                counts = mcnemar((first > 0, second > 0) for _, first, second in at)
                found[policy.name, temperature] = AtTemperature(counts, max(groups.values()) > 1)
    return _adjusted(found)


def _adjusted(
    found: dict[tuple[str, float | None], AtTemperature],
) -> dict[tuple[str, float | None], AtTemperature]:
    out = dict(found)
    for temperature in {key[1] for key in found}:
        keys = [key for key in found if key[1] == temperature]
        for key, p in zip(keys, holm([found[key].counts.p for key in keys]), strict=True):
            out[key] = replace(found[key], adjusted=p)
    return out
