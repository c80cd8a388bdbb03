"""Read a judge's reply: a JSON object by the schema, else one line a metric, `Label: number`.

A metric that is missing, doubled or out of range is asked again; justifications are never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from convbench.answers.tags import split_segments
from convbench.schema import JudgeSpec

_MARKUP = re.compile(r"[*_`#]+(?=\S)|(?<=\S)[*_`]+|</?\w+\b[^<>]{0,80}>")
_NUMBER = r"(?P<value>[-+]?\d++(?:\.\d++)?+)(?: ?(?:/|(?:out )?of) ?(?P<top>\d++))?(?![.,]*+\d|%)"
_LINE = re.compile(
    r"(?im)^(?:[^\w\n]|_)*+(?:\(?\w{1,2}[.)] +)?(?P<label>[^\W\d_][\w &/'-]{0,60}?)"
    r"(?: ?[(\[](?:[^()\[\]]{0,40}?(?:-|–|to|of|/) ?(?P<most>\d+)|[^()\[\]]{0,60})[)\]])?[ \t]*+"
    r"(?:(?:[:=|]|(?<= )(?:-|(?=\d+ ?/))|\.\.++)[^\w\n]*?"
    r"|:?[ \t]*+\n{1,2}[^\w\n]*+(?:(?:score|rating)[ :=]*+)?(?=[-+]?[\d./]+[^\w\n]*$))" + _NUMBER
)
_ROW = re.compile(rf"(?m)^\|(?P<label>[^|\n]+)(?P<most>)\|(?:[^|\n]*\|)*?[ \t]*{_NUMBER}[ \t]*\|")
_ANOTHER = re.compile(r"[^\w\n]{0,3}(?:[-=]>|→|~|(?:to|or|of)\b|[–-] ?\d)|(?:.*\|)? *\d+ *\|")
Entry = tuple[str, Any, str | None, str]  # label, score, top, words
_LABEL_KEYS, _SCORE_KEYS = ("metric", "name", "criterion", "label"), ("score", "rating")
_WORDS_KEYS = ("justification", "reason", "reasoning", "rationale", "explanation", "comment")


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores and justifications of a readable reply, by metric name."""

    scores: dict[str, float]
    justifications: dict[str, str]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why a reply could not be read, as a message to the judge: what was found, what expected."""

    text: str


class JsonPairs(list[tuple[str, Any]]):
    """A JSON object as (key, value) pairs in order, duplicate keys included."""


def read_reply(reply: str | JsonPairs, spec: JudgeSpec) -> Scores | Complaint:
    """Return the scores and justifications of all metrics, or a complaint that lists all faults."""
    names = {_plain(text): m.name for m in spec.metrics for text in (*m.aliases, m.name, m.label)}
    entries = _in_json(reply) if isinstance(reply, JsonPairs) else _in_text(reply)
    limits = {metric.name: spec.score_limits(metric.name) for metric in spec.metrics}
    labels, required = spec.score_labels, spec.justification == "required"
    given, words, faults = dict[str, float](), dict[str, str](), list[str]()
    for label, value, top, said in (entry for entry in entries if _plain(entry[0]) in names):
        low, high = limits[name := names[_plain(label)]]
        words[name] = f"{words.get(name, '')} {said}".strip()
        if not isinstance(value, float) or not low <= value <= high or float(top or high) != high:
            shown = str(value)[:40] + (f" of {top}" if top else "")
            faults.append(f"{labels[name]}: found {shown!r}")
        elif given.setdefault(name, value) != value:
            faults.append(f"found twice: {labels[name]}")
    faults += [f"missing: {labels[name]}" for name in limits if name not in words]
    faults += [f"{labels[x]}: found no justification" for x in words if required and not words[x]]
    if not faults:
        return Scores({name: given[name] for name in limits}, {x: words[x] for x in limits})
    ranges = (f"{labels[name]} ({low:g} to {high:g})" for name, (low, high) in limits.items())
    return Complaint(
        f"Your reply could not be read: {'; '.join(dict.fromkeys(faults))}. Please give all of it "
        f"again, each once, with a number{' and a justification' * required}: {', '.join(ranges)}."
    )


def _plain(label: str) -> str:
    """Return a label in lower case, of words alone, without "score" behind it."""
    return re.sub(r" (?:score|rating)$", "", re.sub(r"[\W_]+", " ", label.lower()).strip())


def _in_text(reply: str) -> list[Entry]:
    """Return the entries of a reply's JSON objects, else of its lines, without a thought before."""
    spoken = (part for part in split_segments(reply) if not part[0])
    start = next((at for _, at, end in spoken if reply[at:end].strip()), len(reply))
    text, entries, done = reply[start:], list[Entry](), 0
    decoder = json.JSONDecoder(object_pairs_hook=JsonPairs)
    for brace in [match.start() for match in re.finditer(r"\{", text)][:200]:
        with suppress(ValueError, RecursionError):
            value, done = decoder.raw_decode(text, brace) if brace >= done else ([], done)
            entries += [*_in_json(value)]
    return entries or [*_in_lines(text)]


def _in_json(value: Any, key: str = "") -> Iterator[Entry]:
    """Yield those of `{m: 8}`, `{m: {score: 8}}`, `{scores: {m: 8}}`, `[{metric: m, score: 8}]`."""
    if _plain(key) == "justifications":
        return
    if isinstance(value, list):
        pairs = value if isinstance(value, JsonPairs) else [(key, inner) for inner in value]
        fields = [(_plain(name), inner) for name, inner in pairs]
        label = next((str(inner) for name, inner in fields if name in _LABEL_KEYS), key)
        words = " ".join(str(inner) for name, inner in fields if name in _WORDS_KEYS)
        scored = [(label, inner) for name, inner in fields if label and name in _SCORE_KEYS]
        for name, inner in scored or pairs:
            yield from ((*e[:3], words if scored else e[3]) for e in _in_json(inner, name))
    else:
        text = re.fullmatch(rf"\s*{_NUMBER}\s*", str(value))
        yield key, float(text["value"]) if text else value, text["top"] if text else None, ""


def _in_lines(text: str) -> Iterator[Entry]:
    """Yield the entries of table rows, or of lines `Label: 8` with the words that follow."""
    text = "\n".join(x for x in _MARKUP.sub("", text).splitlines() if x.lstrip()[:1] != ">")
    heads = [*_ROW.finditer(text)] or [*_LINE.finditer(text)]
    for head, end in zip(heads, [*(head.start() for head in heads[1:]), len(text)], strict=False):
        words = text[head.end() : end]
        value = "several" if _ANOTHER.match(words) else float(head["value"])
        yield head["label"].strip(), value, head["top"] or head["most"], " ".join(words.split())
