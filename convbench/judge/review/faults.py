"""What can be wrong with a simulated human: seven faults, three severities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

FaultName = Literal["leaked", "inverted", "early", "answered", "changed", "off-task", "refused"]
"""A secret told without being asked for; the agent's part taken; the talk ended while the agent
still asks; the result given instead of asked for; other wishes than before or than the reference
has; something that has nothing to do with it; an answer refused."""
Severity = Literal["critical-helped", "critical-hindered", "minor"]
NAMES: tuple[FaultName, ...] = get_args(FaultName)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
HELPS: frozenset[FaultName] = frozenset({"leaked", "answered"})
"""Faults that help the policy; the others hinder it."""
FAULTS = "faults"
"""In a verdict's details: what was found."""
EXCERPT = 160
"""Characters of a turn that a finding repeats."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one turn."""

    fault: FaultName
    severity: Severity
    turn: int
    """Index of the turn among all turns of the conversation, from 0."""
    speaker: str
    said: str
    """How the turn begins, as the policy heard it."""
    by: str
    """`rules`, or the model that found it."""

    def plain(self) -> dict[str, Any]:
        """Return it as a verdict keeps it."""
        return asdict(self)


def counts(found: Iterable[Fault]) -> dict[str, float]:
    """Return the scores of a verdict: whether there is no fault, and the number of each severity,
    a fault counted once however many turns have it, by its gravest."""
    worst: dict[str, Severity] = {}
    for one in found:
        before = worst.get(one.fault, one.severity)
        worst[one.fault] = min(before, one.severity, key=SEVERITIES.index)
    many = Counter(worst.values())
    told = {name.replace("-", "_"): float(many[name]) for name in SEVERITIES}
    return {"clean": float(not worst), **told}


def words(found: Iterable[Fault]) -> dict[str, str]:
    """Return the words for these scores, by severity."""
    said: dict[str, list[str]] = {}
    for one in found:
        name = one.severity.replace("-", "_")
        said.setdefault(name, []).append(f"{one.fault} in turn {one.turn} ({one.by}): {one.said}")
    return {name: "; ".join(lines) for name, lines in said.items()}


def kept(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the faults that a verdict's details hold, those that can be read; the details may
    come from elsewhere."""
    found = details.get(FAULTS)
    listed = found if isinstance(found, list) else []
    return [
        one
        for one in listed
        if isinstance(one, Mapping)
        and one.get("fault") in NAMES
        and one.get("severity") in SEVERITIES
    ]
