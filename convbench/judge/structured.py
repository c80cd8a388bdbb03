"""Replies by a schema: the schema of a rubric, and the scores in such a reply.

What a text must keep to, JSON must too: each metric once, one number in range, no metric of its
own, no score that is taken back. Labels of a text and keys of an object are the same metrics.
"""

from __future__ import annotations

import json
import re
from typing import Any

from convbench.judge.disowned import disowned
from convbench.judge.rubric import Complaint, Scores, complaint, parse, unjustified
from convbench.judge.score import takes_back
from convbench.schema import JudgeSpec

SCORE, WORDS = "score", "justification"
FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL | re.IGNORECASE)
LONGEST = 60
"""Characters of a value that a complaint repeats."""


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


class Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, twice where they stand twice."""


def read(reply: str, spec: JudgeSpec) -> Scores | Complaint:
    """Return the scores of a reply that was asked for by a schema; one that is no such object is
    read as text, for not every server keeps to what it is asked."""
    fence = FENCE.match(reply)
    text = fence[1] if fence else reply
    if not text.lstrip().startswith("{"):
        return parse(reply, spec)
    try:
        found = json.loads(text, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return parse(reply, spec)
    if not isinstance(found, Pairs) or not all(isinstance(v, Pairs) for _, v in found):
        return parse(reply, spec)
    known = {metric.name for metric in spec.metrics}
    return read_object(found, spec) if known & {name for name, _ in found} else parse(reply, spec)


def read_object(found: Pairs, spec: JudgeSpec) -> Scores | Complaint:
    """Return the scores of an object of metrics, or a complaint."""
    labels = {metric.name: metric.label for metric in spec.metrics}
    scores: dict[str, float] = {}
    words: dict[str, str] = {}
    seen: list[str] = []
    faults: list[str] = []
    for name, value in found:
        if name not in labels:
            faults.append(f"unknown metric: {name[:LONGEST]}")
        elif name in seen:
            faults.append(f"found twice: {labels[name]}")
        else:
            seen.append(name)
            faults += _take(name, labels[name], value, spec, scores, words)
    faults += unjustified(spec, seen, words)
    return complaint(spec, seen, faults) or Scores(
        {name: scores[name] for name in labels}, {name: words[name] for name in labels}
    )


def _take(
    name: str,
    label: str,
    value: Pairs,
    spec: JudgeSpec,
    scores: dict[str, float],
    words: dict[str, str],
) -> list[str]:
    """Take one metric's score and words; return what is wrong with them."""
    keys, said = [key for key, _ in value], dict(value)
    number, text = said.get(SCORE), said.get(WORDS, "")
    if len(keys) != len(said):
        return [f"{label}: found a key twice"]
    if isinstance(number, bool) or not isinstance(number, int | float):
        return [f"{label}: found {_shown(number)}; expected a number"]
    low, high = spec.limits(name)
    if not low <= number <= high:
        return [f"{label}: found {_shown(number)}; out of range"]
    if not isinstance(text, str):
        return [f"{label}: found {_shown(text)}; expected words"]
    scores[name], words[name] = float(number), " ".join(text.split())
    if takes_back(text):
        return [f"{name}: the score is taken back ({_shown(text)})"]
    against = disowned(text)
    return [f"the scores are disowned: {_shown(against)}"] if against is not None else []


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
