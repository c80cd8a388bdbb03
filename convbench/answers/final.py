"""The letter that a final turn answers with.

Read are "The answer is X" and its usual variants ("Answer is X", "Final answer: (X)", "The
correct option is X", bold, boxed, quoted), outside thinking blocks; the last one counts. A text
that names no option so is unparsable: None. Not read, because they are too often said of another
option: "X is correct", "I choose X". An answer that names two options ("A or B") names none.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from convbench.answers.tags import visible

# Quantifiers that could fight over the same characters are possessive: time stays linear.
_ADVERB = r"(?:still|indeed|clearly|definitely|probably|likely|most\s+likely|therefore|thus)"
_MARKS = r"[\s*_`]*+"
_OPENING = r"[\s*_`'\"“‘$(\[{<]*+"
_LETTER = (
    rf"{_OPENING}(?:\\?(?:boxed|text|mathrm|textbf)\s*+\{{{_OPENING}){{0,3}}"
    rf"(?P<word>(?:option|choice|letter)\b[\s:]*+{_OPENING})?"
    r"(?P<letter>[^\W_])(?![\w+#])(?!['’]\w|-\w|(?-i:\.[a-z0-9]|\.[A-Z]\.))"
)
_TAIL = re.compile(
    r"[*_`]*+(?:\s++(?:to|for|of|here)\b(?:\s++(?!(?:is|was)\b)[\w'’-]++){0,6}?)?"
    r"(?P<link>\s++(?:is|would\s+be|must\s+be|should\s+be|will\s+be|remains)\b"
    rf"(?:{_MARKS}:)?|['’]s\b|{_MARKS}[:=→–—-]++)"
    rf"{_MARKS}(?:,?\s*+{_ADVERB}\b,?\s*+:?)?{_LETTER}",
    re.IGNORECASE,
)
_BARE = re.compile(_LETTER, re.IGNORECASE)
_CLOSING = r"[\s*_`'\"’”)\]]*+"
_NEXT = r"[\s*_`'\"(\[‘“]*+(?:option\s+|choice\s+)?[A-Z]\b"
_TWO = re.compile(
    rf"{_CLOSING}(?:/|&|,?\s*+\bor\b){_NEXT}"
    rf"|{_CLOSING}(?:,|,?\s*+\band\b){_NEXT}{_CLOSING}(?:[.,;:!?]|$|\bor\b|\band\b)"
)
_WORD = re.compile(r"\s+(?!(?:because|since|as|for|due|given|based|and|but|so|which|is|it)\b)[a-z]")
_QUALIFIED = ("correct ", "right ", "best ", "final ", "correct** ", "final** ")
_NOT_THIS_ONE = (
    "wrong ", "incorrect ", "false ", "not the ", "not an ", "student's ", "student’s ",
    "their ", "his ", "her ",
)  # fmt: skip
_OPENERS = frozenset("*_`'\"“‘$([{<")
_ENDS = frozenset(".,;:!?)]}*_`'\"’”$<>\n")


def final_answer(text: str, letters: Container[str], carried: bool = False) -> str | None:
    """Return the option's letter that the final turn answers with, None where it names none.

    `text` is the final policy turn, whole. `letters` holds the options' letters in upper case
    (a tuple, or a string such as "ABCD"). `carried` says that an earlier turn of the same
    speaker left a thinking block open (`left_open`). Pure and cheap (microseconds), so that it
    can serve as an SQL function.
    """
    text = visible(text, carried)
    for start in _nouns(_lower(text)):
        found = _read(text, start, letters)
        if found is not None:
            return found
    return None


def after_marker(
    text: str, marker: str, letters: Container[str], carried: bool = False
) -> str | None:
    """Return the letter in what follows the last `marker`: a bare letter will do there.

    Without the marker the whole turn is read as `final_answer` does.
    """
    shown = visible(text, carried)
    _, found, rest = shown.rpartition(marker)
    if not found:
        return final_answer(text, letters, carried)
    said = final_answer(rest, letters)
    if said is not None:
        return said
    match = _BARE.match(rest)
    if match is None or not _stands_alone(rest, match, ":") or _TWO.match(rest, match.end()):
        return None
    return _known(match["letter"], letters)


def _nouns(low: str) -> Iterator[int]:
    """Yield where the tail of an answer may begin, the last one first."""
    ends = []
    for noun in ("answer", "option", "choice"):
        at = low.rfind(noun)
        while at != -1:
            before = low[max(0, at - 12) : at]
            wanted = noun == "answer" or before.endswith(_QUALIFIED)
            if wanted and not before.endswith(_NOT_THIS_ONE) and not before[-1:].isalnum():
                ends.append(at + len(noun))
            at = low.rfind(noun, 0, at)
    return iter(sorted(ends, reverse=True))


def _read(text: str, start: int, letters: Container[str]) -> str | None:
    """Return the letter of the answer whose noun ends at `start`, None where it is none."""
    match = _TAIL.match(text, start)
    if match is None or not _stands_alone(text, match, match["link"]):
        return None
    if _TWO.match(text, match.end()):
        return None
    return _known(match["letter"], letters)


def _stands_alone(text: str, match: re.Match[str], link: str) -> bool:
    """Tell a letter from a word: "the answer is a mess", "Answer: A system of tubes"."""
    letter, (at, end) = match["letter"], match.span("letter")
    if letter not in "aAiI" or match["word"]:
        return True
    ended = text[end : end + 1] in _ENDS and end < len(text)
    if letter in "ai":
        return ended
    dressed = ended and text[at - 1 : at] in _OPENERS
    return dressed or link[-1:].isalpha() or not _WORD.match(text, end)


def _known(letter: str, letters: Container[str]) -> str | None:
    letter = letter.upper()
    return letter if letter in letters else None


def _lower(text: str) -> str:
    """Lower-case without changing positions (a few letters lower to two)."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c.lower() if c < "\x80" else c for c in text)
