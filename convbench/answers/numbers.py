"""Numbers as options: 1200 is 1,200, 2.5 is 2.50, and 5 is not the beginning of 5:10."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

_VALUE = (
    r"(?P<sign>[-+])?+\s?+(?P<coin>[$€£¥₹])?+\s?+(?P<minus>-)?+"
    r"(?P<whole>\d{1,3}(?:[, \u00a0\u202f]\d{3})++(?!\d)|\d++)?+(?P<part>\.\d++)?+"
    r"(?:\s?[/⁄]\s?(?P<under>\d{1,100})(?!\d))?"
    r"(?:[ \u00a0-]?(?P<scale>hundred|thousand|million|billion|trillion)(?!\w))?+"
)
_NUMBER = re.compile(
    rf"(?=[-+$€£¥₹ ]*+\.?\d){_VALUE}"
    r"(?P<unit>[ \u00a0]?(?:\\?%|°\s?)?(?:(?:square|cubic|degrees) )?+"
    r"(?:[^\W\d_]++(?:(?:/|\^[23])[^\W\d_]*+)*+)?+"
    r"(?: squared| cubed)?(?: per (?:hour|minute|second|day"
    r"|year|litre|liter|kilogram|gram|cubic metre)\b)?)",
    re.IGNORECASE,
)
_SCALES = {
    "": 1,
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_GOES_ON = re.compile(
    r"[.,:]?\d|\s\d+/\d|\s*+(?:[-+:–—]\s*+[-+]?[($\\{]*+\d"
    r"|(?:[*/×÷^=·<>]|x(?=\s*\d))\s*+[-+]?[($\\{]*+(?:\d|[a-z]\b)"
    r"|\\(?:times|cdot|div|frac)\b)"
)
"""What follows the first number of an expression, a ratio, a range or a decimal."""
_SAYS_MORE = re.compile(
    r"(?:hal(?:f|ves)|thirds?|quarters?|(?:four|fif|six|eigh|ten)ths?|st|nd|rd|th|k|bn|mio|dozen|times|more|less|fewer|to|plus|minus|per"
    r"|over|squared|cubed|out|through|x|of|and\s+a\s+(?:half|quarter|third))\b",
    re.IGNORECASE,
)
"""Words that turn the number before them into another one."""
_EQUALS = re.compile(r"[-+*/×÷^·x\d\s.,()$€£%\\{}a-z]{1,80}?=\s*+(?=[-+$€£\d. ])")
_GROUPED = str.maketrans("", "", ", \u00a0\u202f")
_UNITS = {
    "$": "dollar",
    "€": "euro",
    "£": "pound",
    "¥": "yen",
    "₹": "rupee",
    "%": "percent",
    "\\%": "percent",
    "hour": "h",
    "minute": "min",
    "second": "s",
}
_BASES = {
    "metre": "m",
    "meter": "m",
    "gram": "g",
    "litre": "l",
    "liter": "l",
    "watt": "W",
    "volt": "V",
    "joule": "J",
    "newton": "N",
    "pascal": "Pa",
    "hertz": "Hz",
    "ampere": "A",
    "ohm": "Ω",
    "byte": "B",
}
_PREFIXES = {"": "", "kilo": "k", "centi": "c", "milli": "m", "mega": "M", "giga": "G", "deci": "d"}
_POWERS = {"square": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3"}
_UNIT_NAME = re.compile(rf"(?P<prefix>{'|'.join(_PREFIXES)})(?P<base>{'|'.join(_BASES)})s?")


MOST_DIGITS = 100
"""Most characters of a number; longer ones are no answer, and Python does not convert 5,000
digits."""


NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
)
"""A word's index is its number."""
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NUMBER_VALUES = {
    **{word: number for number, word in enumerate(NUMBER_WORDS[:20])},
    **{word: 10 * number for number, word in enumerate(TENS, 2)},
}
_IN_WORDS = re.compile(
    rf"(?P<minus>(?:minus|negative) )?(?!one\b)(?P<word>{'|'.join(NUMBER_WORDS)})(?![\w-])",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s*+(?:to|through|[-–—])\s*+[-+$€£]?\d")


class Number(NamedTuple):
    """A number, its unit in one spelling (empty if it has none) and where it ends."""

    value: Fraction
    unit: str
    end: int


def whole_number(text: str) -> Number | None:
    """Return the number that makes up the text, with its unit; only blanks and full stops may
    follow. None if the text says anything else."""
    number = number_at(text, 0)
    return number if number is not None and not text[number.end :].strip(" .") else None


def number_at(text: str, at: int) -> Number | None:
    """Return the number that begins at index `at`, with its unit and the index where it ends; of an
    equation the number after its last equals sign.

    Numbers in words up to twenty count. None if no number begins there, it has more than 100
    characters, or it is only a part of an expression, a ratio or a range.
    """
    if word := _IN_WORDS.match(text, at):
        digits = ("-" if word["minus"] else "") + str(NUMBER_WORDS.index(word["word"].lower()))
        written = number_at(digits + text[word.end() : word.end() + 60], 0)
        return written and written._replace(end=word.end() + written.end - len(digits))
    for _ in range(8):
        match = _NUMBER.match(text, at)
        if match is None:
            return None
        if not _GOES_ON.match(text, match.start("unit")):
            return _parse_number(text, match)
        equals = _EQUALS.match(text, at)
        if equals is None:
            return None
        at = equals.end()
    return None


def _parse_number(text: str, match: re.Match[str]) -> Number | None:
    if match.end("part" if match["part"] else "whole") - match.start() > MOST_DIGITS:
        return None
    value = Fraction((match["whole"] or "0").translate(_GROUPED) + (match["part"] or ""))
    if match["under"]:
        if not int(match["under"]):
            return None
        value /= int(match["under"])
    value *= _SCALES[(match["scale"] or "").lower()]
    unit, end = match["unit"].strip(), match.end()
    if _SAYS_MORE.match(unit) or (_SAYS_MORE.match(text[end:].lstrip()[:20]) and not unit):
        return None
    if _PROSE.fullmatch(unit.lower()):
        unit, end = "", match.start("unit")
    if _RANGE.match(text, end):
        return None
    signs = (match["sign"], match["minus"])
    return Number(
        -value if "-" in signs else value, _unit_spelling(unit or match["coin"] or ""), end
    )


def _unit_spelling(unit: str) -> str:
    """Return a unit in one spelling: "kilometres per hour" is km/h, "square metres" m^2."""
    return "/".join(_spelling_of_part(part) for part in re.split(r" per |/", unit))


def _spelling_of_part(unit: str) -> str:
    words = unit.lower().split(" ")
    power = "".join(_POWERS.get(word, "") for word in words)
    named = _UNIT_NAME.fullmatch(words[-1 if words[0] in _POWERS else 0])
    if named:
        unit = _PREFIXES[named["prefix"]] + _BASES[named["base"]] + power
    unit = unit.lower() if len(unit) > 2 else unit
    unit = unit[:-1] if len(unit) > 3 and unit.endswith("s") else unit
    return _UNITS.get(unit, unit)


def is_same_number(number: Number, option: Number, one_unit: bool) -> bool:
    """Return whether a number is an option's: their values are equal and their units agree.

    An option without a unit agrees with any, except percent. A number without a unit agrees with
    the option's if all options have the same one (`one_unit`), except percent.
    """
    if number.value != option.value:
        return False
    if number.unit == option.unit:
        return True
    if "percent" in (number.unit, option.unit):
        return False
    if number.unit in ("°", "degree") and option.unit.startswith("°"):
        return True
    return not option.unit or (not number.unit and one_unit)


_PROSE = re.compile(
    r"a|an|and|as|at|because|but|by|due|for|from|given|here|hence|i|in|is|it|not|on|or"
    r"|rather|since|so|that|the|then|there|therefore|this|thus|too|was|we|when|where|which"
    r"|while|with|you"
)
"""Words that follow a number and are no unit."""
