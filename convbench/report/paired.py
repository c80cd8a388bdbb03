"""Policies against Base, or another, on the same questions: differences, and McNemar's test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from convbench.report.measures import ACCURACY, Measure, by_heat
from convbench.report.policies import Policy
from convbench.report.rows import Observation
from convbench.report.sections import Section
from convbench.stats.means import (
    ErrorKind,
    Estimate,
    McNemar,
    estimate,
    holm,
    mcnemar,
)


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
