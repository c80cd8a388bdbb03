"""One score as judges write it, and what makes it unclear."""

from __future__ import annotations

import re
from typing import NamedTuple

from convbench.answers.taken_back import TAKEN_BACK

_NUMBER = r"[-+−]?\d+(?:\.\d+|,\d(?!\d))?"
SCORE = re.compile(
    r"(?:(?:rated|scored|(?:i\s+)?(?:give|rate|score)s?\s+(?:it|this)(?:\s+an?\b)?)\s*+)?"
    r"(?:(?:score|rating|points?)\s*+(?:[:=]|of\b)?\s*+)?[\[(\"']?\s*+"
    rf"(?P<value>{_NUMBER})(?![\w%]|,\d)"
    r"(?P<range>\s?[-–—]\s?\d(?!\d\d)|\s*(?:to|or|and)\s+\d)?"
    r"(?:\s*(?:/|out\s+of|of)\s*(?P<of>\d+(?:\.\d+)?)(?![\w.]*\d))?"
    r"(?:\s*(?P<points>points?)\b)?\s*[\])\"']?",
    re.IGNORECASE,
)
_UNCLEAR = re.compile(
    r"""\s*(?:
      \.?\d                                               # 8.5.2, 8 7
    | [+?%~±×*^²³…♭<>→⇒➜⟶] | \.\.\. | \.\.\d | [-=]> | \(\s*\?   # 8+, 8?, 7 -> 5, 8 (?)
    | [,;:/|&]\s*(?:(?:no|or|and|then|now|but|max\w*)\b[\s,]*)*[-+]?\d   # 8, 7; 7, no, 5; 8/10/9
    | (?:percent|per\s+cent|and\s+a\s+half|vs|versus|plus|minus|times|or\s+so)\b
    | (?:[^\w\s.,;:–—-]+\s*)?(?:[^\W\d]+\s+){0,2}?(?:out\s+)?of\s+     # 8 stars of 20
      (?:the\s+|a\s+|max\w*\s+)?\d
    | (?:[^\W\d]+\s+)?on\s+a\s+scale\b
    | [,;]?\s*\(?\s*(?:up|down|was|were|or)\b[^.\d]{0,20}\d            # 7, up from 5; 7 (was 5)
    | [,;–—-]?\s*\(?\s*(?:but\s+)?(?:really|honestly|truly|in\s+fact|should\s+be|more\s+like)\b
      [^.\d]{0,8}\d                                       # 10/10 (but really 3)
    | for\s+\w+[,;]\s*\d | =
    | for\s+(?:the\s+)?(?:turn|step|part|first|last|previous)\b
    | (?:before|previously|earlier|initially|at\s+first|originally)\b
    | \(\s*(?:\w+\s+){0,2}?(?:previous|before|earlier|last|first|initial|old|draft|turn|prior
        |example|max\w*|provisional|tentative|actually)\b[^()]*\)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What may not follow a number that is to be the score."""
_REPLACED = re.compile(
    r"\b(?:no|now|then|rather|actually|instead|correct(?:ed|ion)|revised|changed|lowered|raised"
    r"|reduced|adjusted|updated|make\s+(?:it|that)|i\s+meant?|scratch\s+that)\b[^.\d]{0,20}?"
    r"\d+(?:[.,]\d+)?(?=\s*(?:$|[.;,)\]]|/\s*\d|out\s+of))",
    re.IGNORECASE,
)
"""A second number put in the first one's place."""
_COUNTED = re.compile(
    r"\s*(?!(?:because|since|as|for|due|with|but|given|overall|it|the|this)\b)[a-z]"
)
"""A word that a bare number counts: "3 options are never weighed"."""
_DIGIT, _ASCII_DIGIT = re.compile(r"\d"), re.compile(r"[0-9]")
_LATE = re.compile(
    rf"\b(?:score|rating)\s*[:=]\s*(?P<one>{_NUMBER}.*)"
    rf"|(?:[.!?;–—-]\s*|\()(?P<two>{_NUMBER}\s*(?:/|out\s+of)\s*\d+)\s*\)?\.?\s*$",
    re.IGNORECASE,
)
"""A score behind its justification: "It picks granite. Score: 8", "It picks granite (8/10)"."""


class Score(NamedTuple):
    """A score that could be read, and what follows it in its line."""

    value: float
    rest: str


def read_score(low: float, high: float, text: str) -> Score | str:
    """Return the score from low to high that a text begins or ends with, or what is wrong with
    it."""
    match = SCORE.match(text)
    late = _late(text) if match is None else None
    if late is not None:
        start = late.start("one") if late["one"] else late.start("two")
        match = SCORE.match(text, start)
        text = text if late["one"] else text[: late.end("two")]
    if match is None or match["range"]:
        return f"expected one number from {low:g} to {high:g}"
    value, tail = _value(match), text[match.end() :]
    fault = _fault(low, high, match, value, tail)
    return fault or Score(value, tail if late is None else text[: late.start()])


def takes_back(words: str) -> bool:
    """Whether a sentence of a justification takes the score back for another number."""
    if not _says_number(words):
        return False  # most say none, and this is asked of each
    taken = TAKEN_BACK.search("\n" + words)
    return taken is not None and re.match(r"[^.!?]*\d", ("\n" + words)[taken.end() :]) is not None


def _says_number(text: str) -> bool:
    """Whether a text has a digit; ten of them are found faster than all there are."""
    return (_ASCII_DIGIT if text.isascii() else _DIGIT).search(text) is not None


def _late(text: str) -> re.Match[str] | None:
    """Return the one score that stands behind its justification, None where it is not one."""
    found = list(_LATE.finditer(text))
    return found[0] if len(found) == 1 else None


def _fault(low: float, high: float, match: re.Match[str], value: float, tail: str) -> str | None:
    """Return what is wrong with a score and what follows it, None where nothing is."""
    of = match["of"]
    if of is not None and float(of) != high:
        return f"expected a score out of {high:g}"
    if not low <= value <= high:
        return f"out of range, expected a number from {low:g} to {high:g}"
    if tail and _doubted(tail, bare=of is None and match["points"] is None):
        return f"expected one number from {low:g} to {high:g} and nothing that puts it in question"
    return None


def _doubted(tail: str, *, bare: bool) -> bool:
    """Whether what follows a number puts it in question."""
    return bool(
        _UNCLEAR.match(tail)
        or (_says_number(tail) and _REPLACED.search(tail))
        or (bare and _COUNTED.match(tail))
    )


def _value(match: re.Match[str]) -> float:
    return float(match["value"].replace(",", ".").replace("−", "-"))
