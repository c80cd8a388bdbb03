"""Texts are read forwards once, with the findings of the patterns that went back."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest

from convbench.answers.disguises import (
    SuffixAutomaton,
    _letter_by_letter,
    fenced_blocks,
    find_enclosed,
)

FENCE = re.compile(
    r"^[ \t]*((`{3,})(?!`)|(~{3,})(?!~))[^\n]*\n(.*?)(?:^[ \t]*\1(?(3)~*|`*)[ \t]*$|\Z)",
    re.M | re.S,
)
SPELT = re.compile(r"(?<!\w)(?:[^\W_][\W_]{1,3}){3,}[^\W_](?!\w)")
PAGE = re.compile(r"<html\b.*?</html\s*>", re.S)
OPENING, CLOSING = re.compile(r"<html\b"), re.compile(r"</html\s*+>")


def texts(pieces: Sequence[str], count: int = 3_000) -> list[str]:
    """Return short texts made of these pieces, the same ones each time."""
    draw = random.Random(7)
    return ["".join(draw.choices(pieces, k=draw.randint(1, 14))) for _ in range(count)]


def test_fenced_blocks_are_those_of_the_pattern() -> None:
    for text in texts(
        ["```", "~~~", "\n", " ", "x", "```py", "\n```\n", "\n~~~ \n", "\t", "````", "`", "~"]
    ):
        assert list(fenced_blocks(text)) == [found[4] for found in FENCE.finditer(text)], text


def test_letters_with_gaps_are_those_of_the_pattern() -> None:
    for text in texts(["a", "b", "_", " ", "-", "ab", "  ", "   ", "    ", "\n", "é", "a_ "]):
        assert list(_letter_by_letter(text)) == SPELT.findall(text), text


def test_pages_are_those_of_the_pattern() -> None:
    for text in texts(["<html", ">", "</html", "</html>", " ", "x", "\n", "</html >"]):
        spans = [text[a.start() : b.end()] for a, b in find_enclosed(text, OPENING, CLOSING)]
        assert spans == PAGE.findall(text), text


@pytest.mark.parametrize("size", [2, 5])
def test_the_longest_runs_in_common(size: int) -> None:
    for text, other in zip(
        texts("abcde"[:size], 400), texts("edcba"[-size:], 401)[1:], strict=True
    ):
        ends = range(1, len(text) + 1)
        expected = [max(n for n in range(e + 1) if text[e - n : e] in other) for e in ends]
        assert list(SuffixAutomaton(other).longest_runs(text)) == expected, (text, other)
