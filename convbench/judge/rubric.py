"""Read a rubric judge's reply: all scores, or a complaint that says what to mend.

Tolerant of form: markdown (bold labels, headings, bullets, numbers, tables, code fences),
"8/10", "8 out of 10", decimals, "Score: 8", the justification on the same line or the next.
Strict about content: each metric exactly once, a number in range, no metric of its own. A reply
that cannot be read never becomes a score.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from convbench.judge.lines import Line, lines, normal
from convbench.schema import JudgeSpec


@dataclass(frozen=True, slots=True)
class Scores:
    """A reply that could be read: score and justification by metric name."""

    scores: dict[str, float]
    justifications: dict[str, str]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a reply could not be read: what was found and what was expected."""

    text: str


_SCORE = re.compile(
    r"(?:(?:score|rating|points?)\s*+[:=]?\s*+)?[\[(]?\s*+"
    r"(?P<value>[-+−]?\d+(?:\.\d+|,\d(?!\d))?)(?![\w%]|,\d)"
    r"(?P<range>\s?[-–—]\s?\d|\s*(?:to|or|and)\s+\d)?"
    r"(?:\s*(?:/|out\s+of|of)\s*(?P<of>\d+(?:\.\d+)?))?"
    r"(?:\s*points?\b)?\s*[\])]?",
    re.IGNORECASE,
)
_AFTER = re.compile(r"^[\s.,;:–—-]+")
_JUSTIFICATION = re.compile(
    r"^(?:overall |brief )?(?:justification|rationale)\s*:\s*", re.IGNORECASE
)
_NO_METRIC = frozenset(
    {
        "score", "rating", "total", "justification", "overall justification",
        "brief justification", "rationale", "reason", "reasons", "explanation", "summary",
        "comment", "comments", "note", "question", "original question", "choices",
        "correct answer",
    }
)  # fmt: skip


@dataclass(slots=True)
class _Reading:
    """What has been found so far."""

    spec: JudgeSpec
    scores: dict[str, float] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def parse(reply: str, spec: JudgeSpec) -> Scores | Complaint:
    """Return the reply's scores, or a complaint fit to be sent back to the judge."""
    reading = _Reading(spec)
    if not reply.strip():
        return Complaint(_sentence(reading, ["the reply is empty"]))
    _walk(reading, lines(reply))
    missing = [metric.label for metric in spec.metrics if metric.name not in reading.seen]
    faults = reading.faults + ([f"missing: {', '.join(missing)}"] if missing else [])
    if faults:
        return Complaint(_sentence(reading, faults))
    return Scores(
        {metric.name: reading.scores[metric.name] for metric in spec.metrics},
        {name: " ".join(words).strip() for name, words in reading.words.items()},
    )


def _walk(reading: _Reading, todo: list[Line]) -> None:
    """Go through the lines: a metric's line starts it, other lines are its justification."""
    labels = {normal(metric.label): metric.name for metric in reading.spec.metrics}
    aliases = {
        normal(text): metric.name
        for metric in reading.spec.metrics
        for text in (metric.name, *metric.aliases)
    }
    at: str | None = None
    for index, line in enumerate(todo):
        source = _source(line, todo[index + 1] if index + 1 < len(todo) else None)
        name = labels.get(line.label)
        if name is None and _SCORE.match(source.text if source is not line else line.rest):
            name = aliases.get(line.label)  # without a score it may be prose: "Reasoning: ..."
        if name is not None:
            at = name
            _metric(reading, name, line, source)
        elif _foreign(line):
            reading.faults.append(f"unknown metric: {line.shown}")
            at = None
        elif at is not None and not line.used:
            reading.words.setdefault(at, []).append(_JUSTIFICATION.sub("", line.text))


def _source(line: Line, after: Line | None) -> Line:
    """Return the line that holds the score: the next one where this is a label alone."""
    return after if after is not None and line.label and not line.rest else line


def _metric(reading: _Reading, name: str, line: Line, source: Line) -> None:
    """Take a metric's score, or note what is wrong with it."""
    label = next(metric.label for metric in reading.spec.metrics if metric.name == name)
    if name in reading.seen:
        reading.faults.append(f"found twice: {label}")
        return
    reading.seen.append(name)
    text = line.rest if source is line else source.text
    match = _SCORE.match(text)
    fault = _fault(reading.spec, match)
    if match is None or fault:
        found = repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"
        reading.faults.append(f"{label}: found {found}; {fault}")
        return
    source.used = True
    reading.scores[name] = _value(match)
    reading.words[name] = list(filter(None, [_AFTER.sub("", text[match.end() :])]))


def _fault(spec: JudgeSpec, match: re.Match[str] | None) -> str | None:
    """Return what is wrong with a score, None where nothing is."""
    low, high = f"{spec.lowest:g}", f"{spec.highest:g}"
    if match is None or match["range"]:
        return f"expected one number from {low} to {high}"
    if match["of"] is not None and float(match["of"]) != spec.highest:
        return f"expected a score out of {high}"
    if not spec.lowest <= _value(match) <= spec.highest:
        return f"out of range, expected a number from {low} to {high}"
    return None


def _value(match: re.Match[str]) -> float:
    return float(match["value"].replace(",", ".").replace("−", "-"))


def _foreign(line: Line) -> bool:
    """Return whether a line scores something that no rubric asked for.

    Only a line that is nothing but label and score, or sets the label apart by markdown, is
    taken for a metric: "Note: 3 options were weighed" is prose.
    """
    if not line.linked or line.label in _NO_METRIC or not 0 < len(line.label) <= 40:
        return False
    match = _SCORE.match(line.rest)
    if match is None:
        return False
    return line.set_apart or not line.rest[match.end() :].strip(" .")


def _sentence(reading: _Reading, faults: list[str]) -> str:
    labels = {metric.name: metric.label for metric in reading.spec.metrics}
    found = ", ".join(labels[name] for name in reading.seen) or "none"
    low, high = f"{reading.spec.lowest:g}", f"{reading.spec.highest:g}"
    return (
        f"Your reply could not be read: {'; '.join(faults)}. Found the labels: {found}. "
        f"Expected each of these labels exactly once, with a number from {low} to {high}: "
        f"{', '.join(labels.values())}. Please give the whole evaluation again in the exact format."
    )
