"""Normalise a reply's text; find JSON objects in it; count the policy's words."""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

_SIGNS = {
    **dict.fromkeys("【「『〔〖《〈〚〘", "("),
    **dict.fromkeys("】」』〕〗》〉〛〙", ")"),
    **dict.fromkeys("“”„‟«»‘‚‛‹›", '"'),
    **dict.fromkeys("👉➜➔➡⇒⟹→", ":"),
    **dict.fromkeys("✅☑✔✓🎯⭐", " "),
    **dict.fromkeys("。､、،؛।", "."),
    **dict.fromkeys("−﹣－", "-"),
    **{power: f"^{digit}" for digit, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
}
_TABLE = str.maketrans({**_SIGNS, "’": "'"})
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e0fff]"
)
_ENTITY = re.compile(r"&#?\w{1,8};")
_MATH = re.compile(r"\\[()\[\]]|\$\$")
_THIN = re.compile(r"\\[,;:! ]|~(?=\\text)")
_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:bf|it|rm|sf)|operatorname)\s?\{([^{}]{0,200})\}"
)
_FRACTION = re.compile(r"\\[dt]?frac\s?\{(\d{1,12})\}\s?\{(\d{1,12})\}")
_ANSWER_TAG = re.compile(r"<(/?)(?:final[_-]?answer|answer|final)>", re.IGNORECASE)
_LINE_TAG = re.compile(
    r"</?(?:p|br|div|li|ul|ol|dl|dt|dd|h[1-6]|td|tr|th)\b[^<>]{0,80}>", re.IGNORECASE
)
_MARK_TAG = re.compile(
    r"</?(?:b|i|u|em|strong|mark|span|code|font|small|big|sup|sub)\b[^<>]{0,80}>", re.IGNORECASE
)


def normalize_text(text: str) -> str:
    """Return the text with quotes, dashes, brackets and other marks in plain form; case and line
    breaks stay.

    HTML entities are decoded, characters replaced by their NFKC forms, invisible ones removed,
    LaTeX math marks and text commands dropped (a fraction of digits becomes `1/2`), and HTML
    emphasis dropped. An `<answer>` tag becomes `Answer:` on a new line, its end a newline.
    """
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    if not text.isascii():
        text = strip_invisible(unicodedata.normalize("NFKC", text.translate(_TABLE))).translate(
            _TABLE
        )
    if "\\" in text or "$$" in text:
        text = _FRACTION.sub(r"\1/\2", _TEXT.sub(r"\1", _THIN.sub(" ", _MATH.sub("$", text))))
    if "<" in text:
        text = strip_html(_ANSWER_TAG.sub(lambda tag: "\n" if tag[1] else "\nAnswer: ", text))
    return text


def strip_html(text: str) -> str:
    """Return the text without the tags of HTML emphasis and spans, and with a newline for each tag
    of a paragraph, line break, list item, heading or table cell. Other tags stay."""
    return _MARK_TAG.sub("", _LINE_TAG.sub("\n", text))


def strip_invisible(text: str) -> str:
    """Return the text without zero-width characters, direction marks, variation selectors, soft
    hyphens and tag characters. ASCII control characters stay."""
    return text if text.isascii() else _UNSEEN.sub("", text)


def lower_case(text: str) -> str:
    """Return the text in lower case, with the same length and positions.

    If lowering would change the length (a few letters become two), only ASCII letters are lowered.
    """
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if c < "\x80" else c for c in text)


MOST_CHARACTERS = 20_000
"""Characters of a reply that are read."""
MOST_BRACES = 50
"""Braces that are tried, so that a text of braces alone takes bounded time."""


def first_object(text: str) -> dict[str, Any] | None:
    """Return the first JSON object in the first 20,000 characters of a text, whatever surrounds it.

    None without one, or if no object begins at one of the first 50 opening braces.
    """
    text = text[:MOST_CHARACTERS]
    decoder = json.JSONDecoder()
    at, tries = text.find("{"), 0
    while at >= 0 and tries < MOST_BRACES:
        try:
            value, _ = decoder.raw_decode(text, at)
            if isinstance(value, dict):
                return value
        except (ValueError, RecursionError):
            pass
        at, tries = text.find("{", at + 1), tries + 1
    return None


def word_count(texts: Iterable[str]) -> int:
    """Return the number of whitespace-separated words in these texts."""
    return sum(len(text.split()) for text in texts)
