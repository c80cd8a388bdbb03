"""The form of a reply to a rubric: its JSON schema, what JSON of any other form says, and the
complaint about a reply that is something else."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Sequence
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


# JSON of any form

SCORE_KEYS = ("score", "rating", "value", "points", "grade")
LABEL_KEYS = ("metric", "name", "criterion", "label", "dimension", "category")
WORDS_KEYS = (
    "justification", "reason", "rationale", "explanation", "comment", "reasoning", "feedback",
    "note", "why",
)  # fmt: skip
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SIGNS = re.compile(r"[^a-z0-9 ]")
_SCORE_WORD = re.compile(r"^(?:score|rating) (?:for|of) (?:the )?|(?<=\w) (?:score|rating)$")


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, twice where they stand twice."""


class Number(str):
    """A number of JSON as it was written."""


def normal(label: str) -> str:
    """Return a label in lower case, letters and digits only, single spaces; without the word
    "score", which may stand before or after it."""
    words = " ".join(_SIGNS.sub(" ", _CAMEL.sub(" ", label[:200]).lower()).split())
    return _SCORE_WORD.sub("", words)


def lines_of(value: Any, names: Container[str]) -> Iterator[str]:
    """Yield what a JSON value says as lines of text: its metrics (known by these names) as "label:
    score", the words for them, and all else as "key: value"."""
    if isinstance(value, Pairs):
        label = next((one for key, one in value if normal(key) in LABEL_KEYS), None)
        if isinstance(label, str) and _is_scored(value):
            yield from _metric_lines(label, [pair for pair in value if pair[1] is not label])
            return
        for key, inner in value:
            shown = key if normal(key) in names else key.replace("_", " ")
            if isinstance(inner, Pairs) and _is_scored(inner):
                yield from _metric_lines(key, inner)
            elif isinstance(inner, Pairs) and normal(key).removesuffix("s") in WORDS_KEYS:
                yield from (f"Justification of {of}: {_one_line(said)}" for of, said in inner)
            elif isinstance(inner, Pairs | list) and normal(key) not in names:
                yield f"{shown}:"
                yield from lines_of(inner, names)
            else:
                nested = isinstance(inner, Pairs | list)
                yield f"{shown}: {'several values' if nested else _one_line(inner)}"
    elif isinstance(value, list):
        for inner in value:
            yield from lines_of(inner, names)


def _is_scored(pairs: Pairs) -> bool:
    return any(normal(key) in SCORE_KEYS for key, _ in pairs)


def _metric_lines(label: str, pairs: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Yield the lines of an object that is one metric: its score, its words, and what else."""
    scores = [inner for key, inner in pairs if normal(key) in SCORE_KEYS]
    number = scores[0]
    if isinstance(number, str) and not isinstance(number, Number) and "/" not in number:
        number = f"the text {json.dumps(number)}"
    yield f"{label}: {_one_line(number) if len(scores) == 1 else 'the score twice'}"
    for key, inner in pairs:
        if normal(key) in WORDS_KEYS:
            yield f"Justification: {_one_line(inner)}"
        elif normal(key) not in SCORE_KEYS:
            yield f"{key.replace('_', ' ')}: {_one_line(inner)}"


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
