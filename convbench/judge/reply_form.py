"""The form of a reply to a rubric: its JSON schema, the complaint about a reply that cannot be
read, and every other form (JSON, tables, tags, lists in one line) as lines "label: score. words".
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from convbench.answers.plain import seen, untagged
from convbench.schema import JudgeSpec, Metric

SCORE, WORDS = "score", "justification"
FENCE = re.compile(
    r"\A\s*+```(?:json)?[^\S\n]*+\n(.*)\n[^\S\n]*+```\s*+\Z", re.DOTALL | re.IGNORECASE
)
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
    return _object(
        {
            metric.name: _metric(spec, metric.name, metric.about or metric.label)
            for metric in spec.metrics
        }
    )


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
    "justification",
    "reason",
    "rationale",
    "explanation",
    "comment",
    "reasoning",
    "feedback",
    "note",
    "why",
)
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


# Other forms

SCALE_KEY = re.compile(r"(?:out of|max|min|scale|range|high|low|best|worst|direction|better).*")
_FULLWIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20, 0xA0: 0x20}
_QUOTES = dict.fromkeys(map(ord, "“”„«»"), '"') | dict.fromkeys(map(ord, "‘’"), "'")
_LATEX = re.compile(r"\\(?:text[a-z]{0,4}|emph|mathbf)\{([^{}\n]{0,80})\}")
_ESCAPED_BREAK = re.compile(r"\\n(?![a-z])")
_OBJECT = re.compile(r"[{\[](?=\s*[\"{])")
_CELL = re.compile(
    r"[-+]?\d+(?:[.,]\d+)?(?:\s*(?:/|out of|of)\s*\d+)?(?:\s*points?)?", re.IGNORECASE
)
"""A cell that is a score."""
_BEFORE_LIST = re.compile(r"[^\w\"]*+(?:[A-Za-z][A-Za-z ]{0,19}[:=-])?+[^\w\"]*+")
"""What may stand ahead of the first metric that a line lists."""
_MOST = 200
"""Places in a reply at which JSON is looked for."""
_TAG = re.compile(r"<(/?)([A-Za-z][\w -]{0,40})>")


class Known(NamedTuple):
    """What a rubric's metrics are called."""

    names: Mapping[str, str]
    """Names of the metrics by label, name and alias."""
    labels: frozenset[str]
    """The labels: metrics without a score too, where another name may be prose."""
    mention: re.Pattern[str]
    """A metric in a text."""
    listed: re.Pattern[str]
    """A metric in a list, with its number."""

    def mentioned(self, text: str) -> list[tuple[int, str]]:
        """Return the metrics that a text names, with their places."""
        return [
            (match.start(), self.names[normal(match[0])]) for match in self.mention.finditer(text)
        ]


@lru_cache(64)
def known_of(metrics: tuple[Metric, ...]) -> Known:
    """Return what these metrics are called: made once, and asked for with each reply."""
    labels = {normal(metric.label): metric.name for metric in metrics}
    others = {
        normal(text): metric.name for metric in metrics for text in (metric.name, *metric.aliases)
    }
    every = "|".join(
        re.escape(name).replace(r"\ ", r"[\s_-]+")
        for name in sorted({*labels, *others}, key=len, reverse=True)
    )
    mark = r"[\"'*_`]{0,4}"
    return Known(
        {**others, **labels},
        frozenset(labels),
        re.compile(rf"\b(?:{every})\b", re.IGNORECASE),
        re.compile(
            rf"(?<![^\W_]){mark}(?:{every}){mark}(?:[\s_](?:score|rating))?{mark}"
            rf"\s*+(?:[:=–—-]+\s*+|(?<=\s)|(?=\()){mark}[\[(]?{mark}\d",
            re.IGNORECASE,
        ),
    )


def plain_lines(text: str, known: Known) -> list[str]:
    """Return a text's lines, with every form of list as lines "label: score. words"."""
    text = seen(text).translate(_FULLWIDTH).translate(_QUOTES)
    text = _ESCAPED_BREAK.sub("\n", _LATEX.sub(r"\1", text.replace("\\item", "-")))
    text = untagged(_tags(text, known)) if "<" in text else text
    text = _objects(text, known) if "{" in text else text
    lines = _tables(text.splitlines(), known) if "|" in text else text.splitlines()
    return [piece for line in lines for piece in _split(line, known)]


def _tags(text: str, known: Known) -> str:
    """Write HTML's rows as rows of a table, and `<accuracy>8</accuracy>` as a line."""

    def one(tag: re.Match[str]) -> str:
        closing, name = tag[1], normal(tag[2])
        word = "score" if name in SCORE_KEYS else name if name in WORDS_KEYS else ""
        if name in known.names or word:
            return "\n" if closing else f"\n{word or tag[2]}: "
        return {"tr": "|\n" if closing else "\n| ", "td": " | " if closing else ""}.get(
            name.replace("th", "td"), tag[0]
        )

    return _TAG.sub(one, text)


def _objects(text: str, known: Known) -> str:
    """Write JSON objects as lines; numbers stay as they were written."""
    as_written: Any = str
    decoder = json.JSONDecoder(
        object_pairs_hook=Pairs, parse_int=Number, parse_float=Number, parse_constant=as_written
    )
    out, done = [], 0
    for place in [match.start() for match in _OBJECT.finditer(text)][:_MOST]:
        if place < done:
            continue
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        out += [text[done:place], "\n", *(f"{line}\n" for line in lines_of(value, known.names))]
        done = end
    return "".join([*out, text[done:]])


def _tables(lines: list[str], known: Known) -> Iterator[str]:
    """Yield the lines, rows of tables as "label: score. words"."""
    group: list[list[str]] = []
    for line in [*lines, ""]:
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        first = normal(cells[0])
        begins = len(cells) > 1 and (first in known.names or first in LABEL_KEYS)
        if line.strip().startswith("|") or (group and "|" in line) or begins:
            group.append(cells)
            continue
        yield from _table([row for row in group if set("".join(row)) - set(" :+-")], known)
        group = []
        yield line


def _table(rows: list[list[str]], known: Known) -> Iterator[str]:
    head = [normal(cell) for cell in rows[0]] if rows else []
    if sum(name in known.names for name in head) > 1:
        for row in rows[1:]:
            yield from (f"{label}: {cell}" for label, cell in zip(rows[0], row, strict=False))
        return
    for row in rows:
        at = next((i for i, cell in enumerate(row) if normal(cell) in known.names), None)
        if at is None:
            words = " ".join(row[1:])
            yield f"{row[0]}: {words}" if row is not rows[0] else f"scale: {words}"
            continue
        column = _score_column(head, row, at)
        rest = " ".join(cell for i, cell in enumerate(row) if i not in (at, column) and i > 0)
        yield f"{row[at]}: " + (rest if column is None else f"{row[column]}. {rest}".strip())
        scales = (i for i, name in enumerate(head) if SCALE_KEY.fullmatch(name))
        yield from (f"{head[i]}: {row[i]}" for i in scales if i < len(row))


def _score_column(head: list[str], row: list[str], label: int) -> int | None:
    """Return the cell with the score: the column of that name, or the one cell that is a score."""
    named = [i for i, name in enumerate(head) if name in SCORE_KEYS and i < len(row)]
    if len(named) == 1:
        return named[0]
    plain = [re.sub(r"[*`_]+", "", cell) for cell in row]
    alone = [i for i, cell in enumerate(plain) if i > label and _CELL.fullmatch(cell)]
    return alone[0] if len(alone) == 1 else None


def _split(line: str, known: Known) -> list[str]:
    """Split a line that lists several metrics, each with a number."""
    found = list(known.listed.finditer(line)) if ":" in line or any(map(str.isdigit, line)) else []
    before = line[: found[0].start()] if found else ""
    if len(found) < 2 or not _BEFORE_LIST.fullmatch(before):
        return [line]
    ends = [match.start() for match in found[1:]] + [len(line)]
    pieces = [line[match.start() : end] for match, end in zip(found, ends, strict=True)]
    return [before, *(piece.rstrip(" \t,;/|}]") for piece in pieces)]
