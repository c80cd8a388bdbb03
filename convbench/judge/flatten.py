"""JSON, tables, tags and one-line lists as lines of label and score."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from convbench.answers.plain import seen, untagged
from convbench.judge.score import SCORE

Known = frozenset[str]
"""Labels and names of the metrics, as `normal` writes them."""

_FULLWIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_LATEX = re.compile(r"\\(?:text[a-z]{0,4}|emph|mathbf)\{([^{}\n]{0,80})\}")
_RULE = re.compile(r"^[\s|:+-]*-[\s|:+-]*$")
_SCORE_KEYS = ("score", "rating", "value", "points", "grade")
_LABEL_KEYS = ("metric", "name", "criterion", "label", "dimension", "category")
_WORDS_KEYS = ("justification", "reason", "rationale", "explanation", "comment", "reasoning")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SIGNS = re.compile(r"[^a-z0-9 ]")
_SCORE_WORD = re.compile(r"^(?:score|rating) (?:for|of) (?:the )?|(?<=\w) (?:score|rating)$")
_DIGIT = re.compile(r"[0-9]")
_TWO_DIGITS = re.compile(r"[0-9].*[0-9]")
"""What a text has in which any line lists several metrics."""
_USUAL = 100
"""Characters of labels that are remembered."""
_MOST = 200
"""Places in a reply at which JSON is looked for."""


def normal(label: str) -> str:
    """Return a label in lower case, letters and digits only, single spaces; without the word
    "score", which may stand before or after it."""
    return _normal(label) if len(label) <= _USUAL else _normal.__wrapped__(label)


@lru_cache(4096)
def _normal(label: str) -> str:
    words = _CAMEL.sub(" ", label)
    words = " ".join(_SIGNS.sub(" ", words.lower()).split())
    return _SCORE_WORD.sub("", words)


def as_lines(text: str, known: Known) -> str:
    """Return the text with every form of list as lines "label: score. words"."""
    if not text.isascii():
        text = seen(text).translate(_FULLWIDTH).replace("\u00a0", " ")
    if "\\" in text:
        text = _LATEX.sub(r"\1", text.replace("\\item", "-"))
    text = untagged(_tags(text, known)) if "<" in text else text
    text = _objects(text, known) if "{" in text else text
    text = "\n".join(_tables(text.splitlines(), known)) if "|" in text else text
    if text.isascii() and not _TWO_DIGITS.search(text):
        return "\n".join(text.splitlines())
    return "\n".join(piece for line in text.splitlines() for piece in _split(line, known))


def _tags(text: str, known: Known) -> str:
    """Write HTML's rows as rows of a table, and `<accuracy>8</accuracy>` as a line."""

    def one(tag: re.Match[str]) -> str:
        closing, name = tag[1], normal(tag[2])
        word = "score" if name in _SCORE_KEYS else name if name in _WORDS_KEYS else ""
        if name in known or word:
            return "\n" if closing else f"\n{word or tag[2]}: "
        return {"tr": "|\n" if closing else "\n| ", "td": " | " if closing else ""}.get(
            name.replace("th", "td"), tag[0]
        )

    return re.sub(r"<(/?)([A-Za-z][\w -]{0,40})>", one, text)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its keys in order, twice where they stand twice."""


def _objects(text: str, known: Known) -> str:
    """Write JSON objects as lines; numbers stay as they were written."""
    keep: Callable[[str], str] = str
    decoder = json.JSONDecoder(
        object_pairs_hook=_Pairs, parse_int=keep, parse_float=keep, parse_constant=keep
    )
    out, done = [], 0
    for place in [m.start() for m in re.finditer(r"[{\[](?=\s*[\"{])", text)][:_MOST]:
        if place < done:
            continue
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            continue
        out += [text[done:place], "\n", *(f"{line}\n" for line in _flat(value, known))]
        done = end
    return "".join([*out, text[done:]])


def _flat(value: Any, known: Known) -> Iterator[str]:
    """Yield a JSON value's metrics as lines."""
    if isinstance(value, _Pairs):
        named = _first(value, _LABEL_KEYS)
        if isinstance(named, str) and _first(value, _SCORE_KEYS) is not None:
            yield from _line(named, value)
            return
        for key, inner in value:
            nested = isinstance(inner, list)
            if isinstance(inner, _Pairs) and _first(inner, _SCORE_KEYS) is not None:
                yield from _line(key, inner)
            elif nested and normal(key) not in known:
                yield from _flat(inner, known)
            else:
                yield f"{key}: {'several values' if nested else _one_line(inner)}"
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(inner, known)


def _line(label: str, value: _Pairs) -> Iterator[str]:
    yield f"{label}: {_one_line(_first(value, _SCORE_KEYS))}"
    words = _first(value, _WORDS_KEYS)
    if words is not None:
        yield f"Justification: {_one_line(words)}"


def _first(pairs: _Pairs, keys: Sequence[str]) -> Any:
    return next((inner for key, inner in pairs if normal(key) in keys or key in keys), None)


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())


def _tables(lines: list[str], known: Known) -> Iterator[str]:
    """Yield the lines, rows of tables as "label: score. words"."""
    group: list[list[str]] = []
    for line in [*lines, ""]:
        row = line.strip().startswith("|") or (group and "|" in line) or _is_row(line, known)
        if row:
            group.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        yield from _table([cells for cells in group if not _RULE.match("|".join(cells))], known)
        group = []
        yield line


def _is_row(line: str, known: Known) -> bool:
    """Whether a line without outer bars begins a table: a header, or a metric's row."""
    cells = [normal(cell) for cell in line.split("|")]
    return len(cells) > 1 and (cells[0] in known or cells[0] in ("metric", "criterion"))


def _table(rows: list[list[str]], known: Known) -> Iterator[str]:
    head = [normal(cell) for cell in rows[0]] if rows else []
    if sum(name in known for name in head) > 1:
        for row in rows[1:]:
            yield from (f"{label}: {cell}" for label, cell in zip(rows[0], row, strict=False))
        return
    for row in rows:
        at = next((i for i, cell in enumerate(row) if normal(cell) in known), None)
        if at is None:
            yield f"{row[0]}: {' '.join(row[1:])}"
            continue
        column = _score_column(head, row, at)
        rest = " ".join(cell for i, cell in enumerate(row) if i not in (at, column) and i > 0)
        yield f"{row[at]}: " + (rest if column is None else f"{row[column]}. {rest}".strip())


def _score_column(head: list[str], row: list[str], label: int) -> int | None:
    """Return the cell with the score: the column of that name, or the one cell that is a score."""
    named = [i for i, name in enumerate(head) if name in _SCORE_KEYS and i < len(row)]
    if len(named) == 1:
        return named[0]
    plain = [re.sub(r"[*`_]+", "", cell) for cell in row]
    alone = [i for i, cell in enumerate(plain) if i > label and SCORE.fullmatch(cell)]
    return alone[0] if len(alone) == 1 else None


def _split(line: str, known: Known) -> list[str]:
    """Split a line that lists several metrics, each with a number."""
    digits = len(_DIGIT.findall(line)) if line.isascii() else sum(c.isdigit() for c in line)
    if digits < 2 or not _may_list(line, known):
        return [line]
    found = list(_listed(known).finditer(line))
    before = line[: found[0].start()] if found else ""
    own = re.fullmatch(r"[^\w\"“«]*(?:[A-Za-z ]{0,20}[:=-])?[^\w\"“«]*", before)
    if len(found) < 2 or not own:
        return [line]
    ends = [match.start() for match in found[1:]] + [len(line)]
    pieces = [line[m.start() : end] for m, end in zip(found, ends, strict=True)]
    return [re.sub(r"[\s,;/|}\]]+$", "", piece) for piece in pieces]


def _may_list(line: str, known: Known) -> bool:
    """Whether two metrics can stand in a line, by the first words of their names. Any may where it
    is not in ASCII: a pattern that minds no case takes a few other signs for these letters."""
    if not line.isascii():
        return True
    low = line.lower()
    return sum(low.count(word) for word in _first_words(known)) > 1


@lru_cache(64)
def _first_words(known: Known) -> frozenset[str]:
    return frozenset(name.partition(" ")[0] for name in known)


@lru_cache(64)
def _listed(known: Known) -> re.Pattern[str]:
    """Return how one of these metrics looks in a list, with its number."""
    names = "|".join(
        re.escape(name).replace(r"\ ", r"[\s_-]+") for name in sorted(known, key=len, reverse=True)
    )
    mark = r"[\"'*_`]*"
    return re.compile(
        rf"(?<![^\W_]){mark}(?:{names}){mark}(?:[\s_](?:score|rating))?{mark}"
        rf"\s*+(?:[:=–—-]+\s*+|(?<=\s)|(?=\()){mark}[\[(]?{mark}\d",
        re.IGNORECASE,
    )
