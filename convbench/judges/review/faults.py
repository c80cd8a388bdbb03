"""The faults of a simulated human: seven kinds, three severities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

FaultName = Literal["leaked", "inverted", "early", "answered", "changed", "off-task", "refused"]
"""A secret revealed unasked; the agent's role taken; the dialogue ended while the agent still asks;
the result given instead of requested; other wishes than before or than in the reference; something
off the task; an answer refused."""
Severity = Literal["critical-helped", "critical-hindered", "minor"]
NAMES: tuple[FaultName, ...] = get_args(FaultName)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
HELPS: frozenset[FaultName] = frozenset({"leaked", "answered"})
"""Faults that help the policy; the others hinder it."""
FAULTS = "faults"
"""In a verdict's details: the faults."""
EXCERPT = 160
"""Most characters of a turn that a fault quotes."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault in one turn."""

    fault: FaultName
    severity: Severity
    turn: int
    """Index of the turn among all turns of the conversation, from 0."""
    speaker: str
    said: str
    """The beginning of the turn, as the policy heard it."""
    by: str
    """`rules`, or the name of the model that detected it."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fault as it is stored in a verdict: a dict of `fault`, `severity`, `turn`,
        `speaker`, `said` and `by`."""
        return asdict(self)


def severity_counts(faults: Iterable[Fault]) -> dict[str, float]:
    """Return the scores of a verdict: `clean` (1 without a fault, else 0), and the numbers of
    faults `critical_helped`, `critical_hindered` and `minor`.

    A fault in several turns counts once, with its gravest severity.
    """
    worst: dict[str, Severity] = {}
    for fault in faults:
        before = worst.get(fault.fault, fault.severity)
        worst[fault.fault] = min(before, fault.severity, key=SEVERITIES.index)
    many = Counter(worst.values())
    by_severity = {name.replace("-", "_"): float(many[name]) for name in SEVERITIES}
    return {"clean": float(not worst), **by_severity}


def severity_words(faults: Iterable[Fault]) -> dict[str, str]:
    """Return the justifications of these scores: by severity (`critical_helped` and so on) one text
    that lists its faults in order. Severities without a fault are left out."""
    by_severity: dict[str, list[str]] = {}
    for fault in faults:
        name = fault.severity.replace("-", "_")
        by_severity.setdefault(name, []).append(
            f"{fault.fault} in turn {fault.turn} ({fault.by}): {fault.said}"
        )
    return {name: "; ".join(lines) for name, lines in by_severity.items()}


def faults_of_details(details: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the faults in a verdict's details as they are stored, those with a known `fault` and
    `severity`; empty without any. Other fields are not checked, and the details may come from an
    untrusted file."""
    value = details.get(FAULTS)
    listed = value if isinstance(value, list) else []
    return [
        fault
        for fault in listed
        if isinstance(fault, Mapping)
        and fault.get("fault") in NAMES
        and fault.get("severity") in SEVERITIES
    ]
