"""What a reply to a rubric is to be: its JSON schema, what was read of it, and the complaint about
one that is something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from convbench.schema import JudgeSpec

SCORE, WORDS = "score", "justification"
FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
"""A fence around a whole reply."""


@dataclass(frozen=True, slots=True)
class Scores:
    """A reply that could be read: score and justification by metric name."""

    scores: dict[str, float]
    justifications: dict[str, str]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a reply could not be read: what was found and what was expected."""

    text: str


def schema_of(spec: JudgeSpec) -> dict[str, Any]:
    """Return the JSON schema of a reply: an object of the metrics in order, each with its score
    and the words for it."""
    return _object({metric.name: _metric(spec, metric.name, metric.about or metric.label)
                    for metric in spec.metrics})  # fmt: skip


def _metric(spec: JudgeSpec, name: str, about: str) -> dict[str, Any]:
    low, high = spec.limits(name)
    number = {"type": "number", "minimum": low, "maximum": high}
    return {**_object({SCORE: number, WORDS: {"type": "string"}}), "description": about}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def complaint(spec: JudgeSpec, seen: Sequence[str], faults: Iterable[str]) -> Complaint | None:
    """Return the complaint about a reply that has these metrics and faults; None where it has all
    and none."""
    missing = [metric.label for metric in spec.metrics if metric.name not in seen]
    faults = [*dict.fromkeys(faults), *([f"missing: {', '.join(missing)}"] if missing else [])]
    if not faults:
        return None
    found = ", ".join(spec.labels[name] for name in seen) or "none"
    return Complaint(
        f"Your reply could not be read: {'; '.join(faults)}. Found the labels: {found}. "
        f"Expected {_expected(spec)}. Please give the whole evaluation again in the exact format."
    )


def _expected(spec: JudgeSpec) -> str:
    labels = {metric.name: metric.label for metric in spec.metrics}
    limits = {name: spec.limits(name) for name in labels}
    same = len(set(limits.values())) < 2
    low, high = next(iter(limits.values()), (spec.lowest, spec.highest))
    number = f"a number from {low:g} to {high:g}" if same else "a number in its range"
    more = " and a justification" if spec.justification == "required" else ""
    listed = (
        text if same else f"{text} ({limits[name][0]:g} to {limits[name][1]:g})"
        for name, text in labels.items()
    )
    return f"each of these labels exactly once, with {number}{more}: {', '.join(listed)}"
