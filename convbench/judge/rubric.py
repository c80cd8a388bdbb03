"""Read a rubric judge's reply: all scores, or a complaint that says what to mend.

Tolerant of form: markdown (bold labels, headings, bullets, numbers, tables, code fences), HTML,
JSON, lists in one line, "8/10", "8 out of 10", decimals, "Score: 8", the justification on the same
line or the next. Strict about content: each metric exactly once, one number in range, no metric of
its own, in the judge's own words (`own`) and not taken back. A reply that cannot be read never
becomes a score.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from convbench.judge.disowned import disowned
from convbench.judge.flatten import Known, as_lines, normal
from convbench.judge.lines import Line, lines
from convbench.judge.own import own_words
from convbench.judge.score import SCORE, read_score, takes_back
from convbench.schema import JudgeSpec, Metric


@dataclass(frozen=True, slots=True)
class Scores:
    """A reply that could be read: score and justification by metric name."""

    scores: dict[str, float]
    justifications: dict[str, str]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a reply could not be read: what was found and what was expected."""

    text: str


_WORD = re.compile(r"[^\W\d_]{2}|[^\W\d_a-zA-Z]")
"""Letters, without which nothing is a justification; one sign is a word in some scripts."""
_AFTER = re.compile(r"^[\s.,;:–—-]+")
_SCORE_LINE = re.compile(r"(?:score|rating)\s*+[:=]?\s*+[-+−\[(]?\d", re.IGNORECASE)
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


@dataclass(frozen=True, slots=True)
class _Known:
    """What a rubric's metrics are called."""

    labels: Mapping[str, str]
    """Names of the metrics by label."""
    aliases: Mapping[str, str]
    """Names of the metrics by what else they may be called."""
    either: Known
    """All of both."""
    shown: Mapping[str, str]
    """Labels as the rubric writes them, by name."""


@lru_cache(64)
def _known(metrics: tuple[Metric, ...]) -> _Known:
    """Return what these metrics are called: made once, and asked for with each reply."""
    labels = {normal(metric.label): metric.name for metric in metrics}
    aliases = {
        normal(text): metric.name for metric in metrics for text in (metric.name, *metric.aliases)
    }
    shown = {metric.name: metric.label for metric in metrics}
    return _Known(labels, aliases, frozenset({*labels, *aliases}), shown)


@dataclass(slots=True)
class _Reading:
    """What has been found so far."""

    spec: JudgeSpec
    known: _Known
    scores: dict[str, float] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def parse(reply: str, spec: JudgeSpec) -> Scores | Complaint:
    """Return the reply's scores, or a complaint fit to be sent back to the judge."""
    if not reply.strip():
        return Complaint(_sentence(spec, [], ["the reply is empty"]))
    reading = _Reading(spec, _known(spec.metrics))
    own = as_lines(own_words(reply), reading.known.either)
    _walk(reading, lines(own))
    if (said := disowned(own)) is not None:
        reading.faults.append(f"the scores are disowned: {_shown(said)}")
    words = {name: " ".join(said).strip() for name, said in reading.words.items()}
    reading.faults += unjustified(spec, reading.scores, words)
    return complaint(spec, reading.seen, reading.faults) or Scores(
        {metric.name: reading.scores[metric.name] for metric in spec.metrics}, words
    )


def unjustified(spec: JudgeSpec, seen: Iterable[str], words: Mapping[str, str]) -> list[str]:
    """Return a fault for each score without words, where the rubric requires them."""
    if spec.justification != "required":
        return []
    return [f"{spec.labels[name]}: found a score without a justification; expected words for it"
            for name in seen if not _WORD.search(words.get(name, ""))]  # fmt: skip


def complaint(spec: JudgeSpec, seen: Sequence[str], faults: Sequence[str]) -> Complaint | None:
    """Return the complaint about a reply that has these metrics and faults; None where it has all
    and none."""
    missing = [metric.label for metric in spec.metrics if metric.name not in seen]
    faults = [*faults, *([f"missing: {', '.join(missing)}"] if missing else [])]
    return Complaint(_sentence(spec, seen, faults)) if faults else None


def _walk(reading: _Reading, todo: list[Line]) -> None:
    """Go through the lines: a metric's line starts it, other lines are its justification."""
    known = reading.known
    at: str | None = None
    for index, line in enumerate(todo):
        name: str | None = None
        if line.label in known.either:
            source = _source(line, todo, index + 1, known.either)
            name = known.labels.get(line.label)
            if name is None and SCORE.match(source.text if source is not line else line.rest):
                # without a score it may be prose: "Reasoning: ..."
                name = known.aliases[line.label]
        if name is not None:
            at = name
            _metric(reading, name, line, source)
        elif _foreign(line):
            reading.faults.append(f"unknown metric: {line.shown}")
            at = None
        elif at is not None and not line.used:
            said = _JUSTIFICATION.match(line.text)
            _justify(reading, at, line.text[said.end() :] if said else line.text)


def _source(line: Line, todo: list[Line], after: int, known: Known) -> Line:
    """Return the line that holds a metric's score: where this is a label alone the next one (number
    `after`), or the next one that says "Score:" before another metric begins."""
    if after == len(todo) or not line.label or line.rest:
        return line
    for other in todo[after:]:
        if other.label in known:
            break
        if _SCORE_LINE.match(other.text):
            return other
    return todo[after]


def _metric(reading: _Reading, name: str, line: Line, source: Line) -> None:
    """Take a metric's score, or note what is wrong with it."""
    label = reading.known.shown[name]
    if name in reading.seen:
        reading.faults.append(f"found twice: {label}")
        return
    reading.seen.append(name)
    text = line.rest if source is line else source.text
    score = read_score(*reading.spec.limits(name), text)
    if isinstance(score, str):
        reading.faults.append(f"{label}: found {_shown(text)}; {score}")
        return
    source.used = True
    reading.scores[name] = score.value
    _justify(reading, name, _AFTER.sub("", score.rest) if score.rest else "")


def _justify(reading: _Reading, name: str, words: str) -> None:
    """Add to a metric's justification; one that takes its score back is a fault."""
    said = reading.words.setdefault(name, [])
    if not words:
        return
    said.append(words)
    if takes_back(words):
        reading.faults.append(f"{name}: the score is taken back ({_shown(words)})")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def _foreign(line: Line) -> bool:
    """Return whether a line scores something that no rubric asked for.

    Only a line that is nothing but label and score, or sets the label apart by markdown, is
    taken for a metric: "Note: 3 options were weighed" is prose.
    """
    if not line.linked or line.label in _NO_METRIC or not 0 < len(line.label) <= 40:
        return False
    match = SCORE.match(line.rest)
    if match is None:
        return False
    return line.set_apart or not line.rest[match.end() :].strip(" .")


def _sentence(spec: JudgeSpec, seen: Sequence[str], faults: Sequence[str]) -> str:
    labels = {metric.name: metric.label for metric in spec.metrics}
    found = ", ".join(labels[name] for name in seen) or "none"
    own = {name: spec.limits(name) for name in labels}
    same = len(set(own.values())) < 2
    low, high = next(iter(own.values()), (spec.lowest, spec.highest))
    number = f"a number from {low:g} to {high:g}" if same else "a number in its range"
    listed = (
        text if same else f"{text} ({own[name][0]:g} to {own[name][1]:g})"
        for name, text in labels.items()
    )
    more = " and a justification" if spec.justification == "required" else ""
    return (
        f"Your reply could not be read: {'; '.join(faults)}. Found the labels: {found}. "
        f"Expected each of these labels exactly once, with {number}{more}: "
        f"{', '.join(listed)}. Please give the whole evaluation again in the exact format."
    )
