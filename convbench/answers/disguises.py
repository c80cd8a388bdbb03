"""What a text says in disguise: readings of it under which hidden words may come out.

A speaker that may not tell something can still smuggle it: encoded, reversed, shifted, spelt out,
written in letters of another alphabet or hidden among other letters. Each reading is a guess; a
caller looks in all of them for the one thing that must not be said. Not found are translations,
paraphrases and codes that two speakers agreed on.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from convbench.answers.encodings import decoded
from convbench.answers.plain import seen

_MOST = 20_000
"""Characters of a text that are read; no turn is near as long."""
_ALIKE = str.maketrans(
    "аᴀɑαеҽєіıιјоοσрρсϲѕхχуүνԁɡһкκӏмпτтвАВЕКМНОРСТУХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aaaaeeeiiijoooppccsxxyyvdghkklmnttbABEKMHOPCTYXIJSABEZHIKMNOPTYX",
)
"""Cyrillic and Greek letters that look like Latin ones."""
_LEET = str.maketrans("013457@$!|", "oieastasii")
_APART = re.compile(r"[^\W_](?:[\W_]{1,3}+[^\W_])++")
"""Single letters with gaps between them."""
_LETTER = re.compile(r"[^\W_]")
_WORD = re.compile(r"\w")
_MIXED = re.compile(r"[a-z][013457@$!|]|[013457@$!|][a-z]", re.IGNORECASE)
RUN = 24
"""Letters in a row of a hidden text that tell it: the whole text where it is shorter."""
SHORTEST = 12
"""Hidden texts of fewer letters are not looked for in disguises."""


class Reading(NamedTuple):
    """What a text says under one disguise: `open` (its letters in plain Latin), `turned`
    (backwards, shifted), `order` (its words backwards), `spelt`, `hidden` (some of its letters) or
    `decoded`."""

    kind: str
    text: str


def readings(text: str, depth: int = 2) -> Iterator[Reading]:
    """Yield what the text may say in disguise, not the text itself.

    `depth` is how many encodings may lie over each other.
    """
    text = text[:_MOST]
    plain = unmasked(text)
    if plain != text:
        yield Reading("open", plain)
    yield from _turned(plain)
    yield from (Reading("spelt", said) for said in _spelt(plain))
    yield from (Reading("hidden", said) for said in _hidden(plain))
    for said in decoded(plain) if depth else ():
        yield Reading("decoded", said)
        yield from (Reading("decoded", inner) for _, inner in readings(said, depth - 1))


def runs(secret: str, known: str = "") -> frozenset[str]:
    """Return the runs of letters by which a hidden text is told in a disguise; none of a text too
    short to be told, and none that stand in what everybody knows."""
    said, shown = letters(unmasked(secret)), letters(unmasked(known))
    size = min(RUN, len(said))
    if size < SHORTEST:
        return frozenset()
    found = {said[i : i + size] for i in range(len(said) - size + 1)}
    return frozenset(run for run in found if run not in shown)


def smuggled(text: str, secrets: Iterable[frozenset[str]]) -> bool:
    """Whether a disguise of the text holds a run of a secret (`runs`)."""
    wanted = [(len(next(iter(secret))), secret) for secret in secrets if secret]
    if not wanted:
        return False
    openly = letters(text)
    for kind, said in readings(text):
        bare = "" if kind == "open" else letters(said)
        for size, secret in wanted:
            for i in range(len(bare) - size + 1):
                run = bare[i : i + size]
                if run in secret and (kind == "spelt" or run not in openly):
                    return True
    return False


def unmasked(text: str) -> str:
    """Return the text in plain Latin letters: fullwidth and ornamental ones, look-alikes of other
    alphabets, accents and unseen marks undone."""
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", seen(text).translate(_ALIKE))
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    return "".join(_badge(c) for c in plain)


def letters(text: str) -> str:
    """Return letters and digits alone, in lower case."""
    return "".join(filter(str.isalnum, text)).lower()


def _badge(char: str) -> str:
    """Return the letter in a square, a circle or a flag."""
    for first in (0x1F1E6, 0x1F130, 0x1F150, 0x1F170):
        if first <= ord(char) < first + 26:
            return chr(65 + ord(char) - first)
    return char


def _turned(text: str) -> Iterator[Reading]:
    """Yield the text backwards, its letters shifted, and digits in letters' places undone."""
    words = text.split()
    yield Reading("turned", text[::-1])
    yield Reading("turned", " ".join(word[::-1] for word in words))
    yield Reading("order", " ".join(reversed(words)))
    for table in (*_SHIFTS[1:], _ATBASH):
        yield Reading("turned", text.translate(table))
    yield Reading("turned", text.translate(_SHIFTS[13])[::-1])
    if len(_MIXED.findall(text)) > 1:
        yield Reading("turned", text.translate(_LEET))


def _spelt(text: str) -> Iterator[str]:
    """Yield what is spelt out letter by letter: "t-h-e  a-n-s-w-e-r", "t h e a n s w e r"."""
    pieces = list(_letter_by_letter(text))
    for piece in pieces:
        yield _joined(piece)
    if len(pieces) > 1:
        yield " ".join(map(_joined, pieces))


def _letter_by_letter(text: str) -> Iterator[str]:
    """Yield every run of four single letters or more that no word touches."""
    for apart in _APART.finditer(text):
        letter = [found.start() for found in _LETTER.finditer(text, *apart.span())]
        begin = [at for at in letter if not _WORD.match(text[at - 1 : at])]
        end = [at for at in letter if not _WORD.match(text, at + 1)]
        if begin and end and bisect_left(letter, end[-1]) - bisect_left(letter, begin[0]) >= 3:
            yield text[begin[0] : end[-1] + 1]


def _joined(piece: str) -> str:
    """Join spelt letters; a gap wider than the usual one parts words."""
    gaps = re.findall(r"[\W_]+", piece)
    usual = min(gaps, key=len) if gaps else ""
    return "".join(
        char if _LETTER.match(char) else ("" if char == usual else " ")
        for char in re.findall(r"[^\W_]|[\W_]+", piece)
    )


def _hidden(text: str) -> Iterator[str]:
    """Yield every other letter, and the first letters of words, sentences and lines."""
    bare = "".join(filter(str.isalnum, text))
    yield bare[::2]
    yield bare[1::2]
    for units in (text.split(), re.split(r"[.!?]\s+", text), text.splitlines()):
        initials = (_LETTER.search(unit) for unit in units)
        yield "".join(match[0] for match in initials if match)


def _shift(by: int) -> dict[int, int]:
    return {first + i: first + (i + by) % 26 for first in (ord("a"), ord("A")) for i in range(26)}


_SHIFTS = [_shift(by) for by in range(26)]
_ATBASH = {first + i: first + 25 - i for first in (ord("a"), ord("A")) for i in range(26)}
