"""Words and marks around an option: its markup, what ends it, what joins two.

They are matched in plain form. Quantifiers that could compete for the same characters are
possessive, so that time stays linear. What is searched before a position is searched in a bounded
piece.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

OPENING = r"[\s*_`~'\"$(\[{<#]*+"
_WRAP = r"\\?(?:f?boxed|text|math|bold)[a-z]{0,10}+\s*+\{"
_WORD = (
    r"(?:(?:first|second|third|fourth|fifth|last)\s+(?:option|choice|one|answer),?\s++"
    r"|(?:option|choice|letter|answer(?=\s+\(?[A-Z]\b))\b[\s:-]*+)"
)

ONE_LETTER = re.compile(
    rf"{OPENING}(?:{_WRAP}{OPENING}){{0,3}}"
    rf"(?P<word>(?:the\s+)?{_WORD}{OPENING})?"
    r"(?P<letter>[A-Za-z0-9])(?=(?-i:[぀-ヿ一-鿿가-힣])|$|[^\w+#%]|_(?!\w))"
    r"(?!['’](?!(?:[dt][iıuü]r|y[iıuü])\w{0,3}\b)\w|-\w|♭|♯|(?-i:\.[a-z0-9]|\.[A-Z]\.))",
    re.IGNORECASE,
)
"""An option's letter in its markup."""
BOXED = re.compile(r"\\f?boxed\s*+\{")
WRAPPED = re.compile(
    rf"{OPENING}(?:(?<=```)[\w+-]{{1,12}}\s*\n{OPENING})?(?:{_WRAP}{OPENING}){{0,3}}"
    rf"(?:(?:the\s+)?{_WORD}{OPENING})?",
    re.IGNORECASE,
)
"""The markup of an option's text."""

ENDS = frozenset(".,;:!?)]}*_~`'\"’”$<>\n")
OPENERS = frozenset("*_~`'\"“‘$([{<")
_FUNCTION = (
    "because|since|as|for|due|given|based|and|but|so|which|is|it|not|rather|over|by|from|in|on"
    "|with|without|when|if|while|after|although|though|that|or|here|there|again|then|therefore"
    "|thus|hence|instead|where|who|whose|this|these|those|i|we|you|he|she|they|its|only|alone"
    "|obviously|clearly|indeed|too|also|to|than|at|per|via|according|considering|meaning|seeing"
    "|unless|until|despite|thanks|even|just|my|our|the|has|was|would|can|does"
)
NOUN_AFTER = re.compile(rf"[ \t]+(?!(?:{_FUNCTION})\b)[a-z]")
"""What follows an article and never a letter: a word that is no function word."""
ARTICLES = r"(?:(?:an?|the|el|la|los|las|les?|der|das|il|het)\s+|die\s+(?-i:(?=[A-ZÄÖÜ]))|l['’])"
ARTICLE = re.compile(rf"{ARTICLES}(?=\S)", re.IGNORECASE)
ENDED = re.compile(
    rf"\s*(?:$|[.,;:!?)\]}}*_~`'\"$<>\n]|\(|[–—]|-\s|(?<=\s)(?:[ap]\.?m\b|(?:{_FUNCTION})\b))"
)
OR = re.compile(r"[\s*_`'\")]*(?:,\s*)?(?:and/or|or|and|/|&)\b")

GOES_ON = re.compile(r"[.,:]?\d|\s*+(?:[-+:–—]\s*+[($\\{]*+\d|[*/×÷^=<>]\s*+[($\\{]*+\w)")
"""What follows the digit that a text ends in and makes another number of it."""
COMMA = re.compile(r"[\s*_`'\")]*+(?:,|;)\s*+(?:the\s+)?")
CLOSED = re.compile(
    r"[*_`~\"'’)\]}$]*+\s*+(?:$|[.,;:!?…)\n]|[—–]|-\s|\(|(?<=\n)"
    r"|(?:because|since|as|for|due|given|based|by|here|again|then|instead|too|now|overall|after"
    r"|therefore|not|rather|over|which|where|when|with|on\s+this|in\s+this|alone|only|and\s+not|and\s+(?:it|the|that)"
    r"|as\s+well|if|out\s+of)\b)"
)
"""What may follow an option that a sentence chooses: no word that it is the subject of."""
FINISHED = re.compile(r"[*_`~\"'’)\]}$\s]*+(?:$|[.!;)]|\n|[,(]|[—–]|-\s|(?:because|since|as)\b)")
NO_MORE = re.compile(
    r"[\s*_`~\"'’)\]}$.!>|,:;-]*+(?:</?\w+>|(?:then|it\s+is|all\s+the\s+way|for\s+(?:sure|certain)|of\s+course|obviously|after\s+all|no\s+(?:doubt|question)|in\s+(?:total|all)|altogether"
    r"|without\s+(?:a\s+)?doubt|i\s+(?:think|believe|guess))\W*+)?\s*+$"
)
DRESS = re.compile(
    r"^(?:(?:[\s>|+•]|-(?!\d))++|\d{1,2}\.\s(?=\S))*+(?:(?:sql|query)\s?+:\s*+)?(?:(?:probably|definitely|clearly|certainly|surely"
    r"|obviously|of\s+course|ok(?:ay)?|so|thus|therefore|hence|yes|must\s+be|it\s+(?:is|must\s+be)"
    r"|it['’]s|i\s+think|i\s+guess)\b[,:]?\s+)*+",
    re.IGNORECASE,
)
"""How a line may begin that says nothing but an option."""
LETTER_BEFORE = re.compile(
    r"(?<![A-Za-z0-9_'’])(?:(?:[Tt]he\s+)?(?:[Oo]ption|[Cc]hoice|[Ll]etter|[Aa]nswer|[Ss]tatement)\s+)?"
    r"[(*_`\"'\[]{0,8}(?P<letter>[A-Z]|(?<=\()[a-z](?=\)))$"
)
_STARTS = re.compile(r"(?<![\w.,])[\w$€£-]")
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "last")
_ORDER = rf"(?:the\s+)?(?P<place>{'|'.join(ORDINALS)})\s+(?:option|choice|one|answer|alternative)"
ORDINAL = re.compile(rf"{OPENING}{_ORDER}(?!\w)", re.IGNORECASE)
ORDINAL_BEFORE = re.compile(rf"(?<!\w){_ORDER}$", re.IGNORECASE)
LETTERS = re.compile(r"(?<![\w'’°])(?<!° )(?P<letter>[A-HJ-Z])(?![\w'’])")

_CLOSING = r"[\s*_`~'\")\]]*+"
_NEXT = (
    r"[\s*_`~'\"(\[]*+(?:(?:maybe|perhaps|possibly|even|also|either|else)\s+)?"
    r"(?:option\s+|choice\s+)?[A-Z]\b"
)
_TWO = re.compile(
    rf"{_CLOSING}(?:/|&|\||\+|[,.…]*\s*+\(?(?:and/)?or(?:\s+is\s+it)?\b|through\b|to\b){_NEXT}"
    rf"|{_CLOSING}(?:,|;|,?\s*+\band\b){_NEXT}{_CLOSING}(?:[.,;:!?}}]|$|\n|\bor\b|\band\b)"
    r"|[^\n\w]*\\text\{\s*(?:or|and)\b"
)
_BESIDE = re.compile(r"(?:[ \t]+|\s?:\s?)(?P<letter>[A-Z])[ \t]*(?:[.,;!?]|$|\n)")


def names_two(text: str, end: int, letters: Collection[str]) -> bool:
    """Return whether an option's letter that ends at index `end` is followed by a second one: "A or
    B", "A/B", "A, B.".

    `letters` are the options' letters in upper case. A letter directly beside it counts only if it
    is one of them and not I.
    """
    if _TWO.match(text, end):
        return True
    beside = _BESIDE.match(text, end)
    return beside is not None and beside["letter"] in letters and beside["letter"] != "I"


def word_starts(text: str, low: int, stop: int) -> Iterator[int]:
    """Yield, in order, the indexes from `low` to before `stop` at which a word, a number or the
    sign before one (`$`, `€`, `£`, `-`) begins."""
    for match in _STARTS.finditer(text, low, stop):
        yield match.start()
