"""The option that a final turn answers with.

Read are "The answer is X" and its usual variants ("Answer choice: X", "Final answer: (X)", a
heading with the letter below, bold, boxed, quoted), outside thinking blocks, with the option's
letter or its text in X's place; the last one counts. Not read, because they are too often said of
another option: "X is correct", "I choose X". What is only supposed, denied or another's answer is
none ("if the answer is A", "I do not think the answer is A", "the student's answer is A"). An
answer that names two options ("A or B") and one that is taken back with nothing in its place
("The answer is A. Wait, no.") are none either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from convbench.answers import wording
from convbench.answers.plain import lower, plain
from convbench.answers.tags import visible
from convbench.answers.taken_back import TAKEN_BACK

Letters = Mapping[str, str] | Collection[str]
"""The options' letters in upper case (a tuple, or a string such as "ABCD"), or their texts by
letter: only then an option's text is read as an answer."""

_Read = Callable[[str, int, Letters], str | None]
"""How a statement is read that begins at a place: None where it is none after all."""
NOBODY = ""
"""Read of a statement that answers with no option, so that no earlier one counts."""


def final_answer(text: str, letters: Letters, carried: bool = False) -> str | None:
    """Return the option's letter that the final turn answers with, None where it names none.

    `text` is the final policy turn, whole. `carried` says that an earlier turn of the same
    speaker left a thinking block open (`left_open`). Pure and cheap (microseconds), so that it
    can serve as an SQL function.
    """
    return _last_answer(plain(visible(text, carried)), letters)


def after_marker(text: str, marker: str, letters: Letters, carried: bool = False) -> str | None:
    """Return the option in what follows the last `marker`: a bare letter or text will do there.

    Without the marker the whole turn is read as `final_answer` does.
    """
    shown = visible(text, carried)
    _, found, rest = shown.rpartition(marker)
    rest = plain(rest) if found else plain(shown)
    said = _last_answer(rest, letters)
    if said is not None or not found:
        return said
    match = wording.BARE.match(rest)
    return _option(rest, wording.OPENING.match(rest).end(), match, ":", letters) or None  # type: ignore[union-attr]


def _last_answer(text: str, letters: Letters) -> str | None:
    """Return the option of the last statement that is one, None where there is none."""
    for read, start in _statements(text):
        found = read(text, start, letters)
        if found is not None:
            return found or None
    return None


def _statements(text: str) -> Iterator[tuple[_Read, int]]:
    """Yield how and where a statement may begin, the last one first."""
    low = lower(text)
    places: list[tuple[int, _Read]] = []
    for noun in wording.NOUN.finditer(low):
        before = low[max(0, noun.start() - 80) : noun.start()]
        if wording.CHANGED.search(before):
            places.append((noun.end(), _changed))
        elif wording.is_stated(noun[0], before):
            places.append((noun.end(), _named))
    for box in wording.BOXED.finditer(low) if "boxed" in low else ():
        if not wording.speaks_of_an_answer(low[max(0, box.start() - 80) : box.start()]):
            places.append((box.start(), _boxed))
    for start, read in sorted(places, key=lambda place: place[0], reverse=True):
        yield read, start


def _named(text: str, start: int, letters: Letters) -> str | None:
    """Read what follows a noun that ends at `start`: "answer" + " is C"."""
    link = wording.LINK.match(text, start)
    if link is not None:
        match = wording.BARE.match(text, link.end())
        at = wording.OPENING.match(text, link.end()).end()  # type: ignore[union-attr]
        return _settled(text, at, match, link["link"], letters)
    match = wording.ALONE.match(text, start)
    if match is None or not wording.begins_a_line(text, start):
        return None
    return _settled(text, match.end(), wording.BARE.match(text, match.end()), "\n", letters)


def _changed(text: str, start: int, letters: Letters) -> str | None:
    """Read "I change my answer" + " from A to B"."""
    match = wording.CHANGED_TO.match(text, start)
    return _known(match["letter"], letters) or None if match else None


def _boxed(text: str, start: int, letters: Letters) -> str | None:
    r"""Read `\boxed{C}` that stands alone; what is in it is no option where it is a result."""
    match = wording.BARE.match(text, start)
    at = wording.WRAPPERS.match(text, start).end()  # type: ignore[union-attr]
    found = _option(text, at, match, "{", letters)
    return None if found is None else _kept(text, at, found, letters)


def _settled(
    text: str, at: int, match: re.Match[str] | None, link: str, letters: Letters
) -> str | None:
    """Read the option said at `at`, and whether it is taken back later."""
    found = _option(text, at, match, link, letters)
    return None if found is None else _kept(text, at, found, letters)


def _kept(text: str, at: int, found: str, letters: Letters) -> str:
    """Return the option, or what it is replaced with where the text takes it back."""
    taken = TAKEN_BACK.search(text, at)
    if taken is None:
        return found
    new = wording.INSTEAD.match(text, taken.end())
    return _known(new["letter"], letters) or NOBODY if new else NOBODY


def _option(
    text: str, at: int, match: re.Match[str] | None, link: str, letters: Letters
) -> str | None:
    """Return the option named at `at`, by its text or by its letter; NOBODY where two are named.

    `match` is what `BARE` found there, `link` what stands before it.
    """
    by_text = _by_text(text, at, letters) if isinstance(letters, Mapping) else None
    if by_text is not None:
        return by_text
    if match is None or not _stands_alone(text, match, link):
        return None
    letter = _known(match["letter"], letters)
    return NOBODY if letter and wording.names_two(text, match.end(), letters) else letter


def _by_text(text: str, at: int, options: Mapping[str, str]) -> str | None:
    """Return the option whose text stands at `at`, the longest; None where none does."""
    low = lower(text[at : at + 400])
    skip = wording.ARTICLE.match(low)
    low = low[skip.end() :] if skip else low
    found = [(len(said), x) for said, x in _texts(options) if low.startswith(said)]
    for length, letter in sorted(found, reverse=True):
        if wording.OR.match(low, length):
            return NOBODY
        if wording.ENDED.match(low, length):
            twice = sum(size == length for size, _ in found) > 1
            return NOBODY if twice else letter
    return None


def _texts(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the options' texts as they are looked for, and their letters."""
    for letter, text in options.items():
        said = lower(plain(text)).strip().strip(".").strip()
        said = said[skip.end() :] if (skip := wording.ARTICLE.match(said)) else said
        if said and said.upper() not in options:
            yield said, letter


def _stands_alone(text: str, match: re.Match[str], link: str) -> bool:
    """Tell a letter from a word: "the answer is a mess", "Answer: A system of tubes"."""
    letter, (at, end) = match["letter"], match.span("letter")
    after = text[end : end + 1]
    if link == "\n" and after and after not in wording.ENDS:
        return False
    if letter not in "aAiI" or match["word"]:
        return True
    ended = after in wording.ENDS and end < len(text)
    if letter in "ai":
        return ended
    dressed = ended and text[at - 1 : at] in wording.OPENERS
    return dressed or not wording.NOUN_AFTER.match(text, end)


def _known(letter: str, letters: Letters) -> str | None:
    letter = letter.upper()
    return letter if letter in letters else None
