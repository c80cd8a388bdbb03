"""The option that a final turn answers with.

Every place outside thinking blocks is read where the turn says which option it answers with
(`statements`), in English and the languages of `languages`: "the answer is X" and its variants, a
box, "I choose X", "X is the correct answer", a sentence that ends in "so X", a line or a turn that
is nothing but one option. X is the option's letter, its text, or its number in any writing. What is
conditional, denied, asked, quoted or ascribed to others is no answer (`claims`). The last answer
counts, and one that is retracted does not; what follows another turn or another question is not the
reply's (`own_part`). An answer that names two options is none, and in doubt there is none.

`strict` reads only the paper's phrase, "The answer is X" in its usual variants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from convbench.answers import wording
from convbench.answers.options import NOBODY, Letters, Options, Statement, prepared
from convbench.answers.own_part import own_parts
from convbench.answers.plain import lower, plain
from convbench.answers.statements import closing, last_sentence, statements
from convbench.answers.tags import visible
from convbench.answers.taken_back import DENIED, DOUBTED, INSTEAD, UNSURE, WITHDRAWN

_STRUCK = re.compile(r"~~[^~\n]{0,400}~~|<(del|s|strike)>[^<]{0,400}</\1>", re.IGNORECASE)

_TICK = re.compile("[✅✔☑✓]")
_CROSSED = re.compile(r"^[^\n❌✗✘✖]*+[❌✗✘✖][^\n]*+$", re.MULTILINE)
"""A line with a cross in a text where others have a tick."""
_MARKED = re.compile(
    r"^(?P<item>[ \t|>*#(_•-]*+\(?[A-Z]\b[^\n❌✗✘✖✅✔☑✓]*+)(?:(?P<tick>[✅✔☑✓])|[❌✗✘✖])\ufe0f?",
    re.MULTILINE,
)
"""An option of a list with a tick or a cross."""
_NEAR = 60
"""Characters after an answer in which "that is wrong" refers to it."""


def final_answer(
    text: str, letters: Letters, carried: bool = False, strict: bool = False
) -> str | None:
    """Return the letter of the option that the final turn answers with, or None if it names none.

    `text` is the complete final policy turn. `carried` says that an earlier turn of the same
    speaker left a thinking block open. Pure and cheap, so that it can serve as an SQL function.
    """
    options = prepared(letters)
    texts = letters.values() if isinstance(letters, Mapping) else ()
    said = _ticks_in_words(_STRUCK.sub(" ", visible(text, carried)))
    shown = plain(_CROSSED.sub("", said) if _TICK.search(said) else said)
    for piece in own_parts(shown, frozenset(one.strip(" .").lower() for one in texts)):
        found = _answer(piece, options, strict)
        if found is not None:
            return found or None
    return None


def _ticks_in_words(text: str) -> str:
    """Return the text with the ticks and crosses of a list of options as "yes" and "no"."""
    if len(_MARKED.findall(text)) < 2:
        return text
    return _MARKED.sub(lambda mark: mark["item"] + (": yes;" if mark["tick"] else ": no;"), text)


def after_marker(
    text: str, marker: str, letters: Letters, carried: bool = False, strict: bool = False
) -> str | None:
    """Return the option named after the last `marker`; there a bare letter or text is enough.

    Without the marker the complete turn is read as `final_answer` does.
    """
    shown = visible(text, carried)
    _, marked, rest = shown.rpartition(marker)
    rest = rest if marked else shown
    said = final_answer(rest, letters, strict=strict)
    if said is not None or not marked:
        return said
    named = prepared(letters).named_at(plain(rest), 0)
    return named.letter or None if named else None


class _Stand(NamedTuple):
    """The answer so far (None: nothing yet, NOBODY: retracted without another), whether it is firm,
    since where it is in doubt, and where it was said last."""

    letter: str | None = None
    firm: bool = False
    doubted: int | None = None
    end: int = 0
    mixed: bool = False


def _answer(text: str, options: Options, strict: bool) -> str | None:
    """Return the option that one piece answers with, NOBODY if it retracts its answer or names two,
    None if it says nothing."""
    if not strict and (whole := options.whole(text)):
        return whole
    return _Reading(text, options, strict).answer()


class _Reading:
    """Reads one piece of a reply from its first statement to its last."""

    def __init__(self, text: str, options: Options, strict: bool) -> None:
        self._text, self._options, self._strict = text, options, strict
        self._last = last_sentence(text)
        self._named = options.last_named(text)

    def answer(self) -> str | None:
        """Return the piece's answer: none if it stays in doubt, or between two that are said
        softly."""
        stand = _Stand()
        for event in self._events():
            if isinstance(event, Statement):
                stand = self._after(stand, event)
            elif stand.letter:
                stand = self._doubted(stand, event)
        if stand.mixed:
            return NOBODY
        if stand.letter and stand.doubted is not None:
            unsure = UNSURE.search(self._text, stand.doubted)
            return NOBODY if unsure or self._another(stand.doubted, stand.letter) else stand.letter
        return stand.letter

    def _events(self) -> list[Statement | re.Match[str]]:
        """Return statements, and words that retract or doubt them, in order."""
        said = statements(self._text, self._options, self._strict)
        if not self._strict:
            said += closing(self._text, self._options)
        low = lower(self._text)
        doubts = [m for words in (*WITHDRAWN, DENIED, DOUBTED) for m in words.finditer(low)]
        said += [one for doubt in doubts for one in self._instead(doubt.end())]
        return sorted({*said, *doubts}, key=_place)

    def _instead(self, at: int) -> Iterator[Statement]:
        """Yield the option that directly follows words of retraction."""
        start = INSTEAD.match(self._text, at).end()  # type: ignore[union-attr]
        named = self._options.named_at(self._text, start)
        if named and named.letter and wording.FINISHED.match(self._text, named.end):
            yield Statement(at, named.end, named.letter, False)

    def _another(self, at: int, letter: str) -> bool:
        """Return whether another option is named at a position or after it."""
        return any(place >= at for other, place in self._named.items() if other != letter)

    def _doubted(self, stand: _Stand, words: re.Match[str]) -> _Stand:
        """Return the state after words that doubt or retract the answer."""
        if words.re is DENIED and words.start() - stand.end > _NEAR:
            return stand
        letter = stand.letter if words.re is DOUBTED else NOBODY
        return _Stand(letter, stand.firm, words.end(), stand.end)

    def _after(self, stand: _Stand, said: Statement) -> _Stand:
        """Return the state after one more statement."""
        now = _Stand(said.letter, said.firm, None, said.end)
        if stand.doubted is not None:
            return now._replace(firm=True)
        counted = said.by_text and self._text[said.end - 1].isdigit()
        closes = said.start >= self._last or not (counted or self._another(said.end, said.letter))
        if not said.firm and said.by_text and not closes:
            return stand
        if not stand.letter:
            return now
        if said.letter == stand.letter:
            return stand._replace(firm=stand.firm or said.firm, end=said.end)
        if said.firm:
            return stand if said.would and stand.firm else now
        if not stand.firm:
            return now._replace(mixed=not closes)
        return _Stand(NOBODY, True) if closes and not said.by_text else stand


def _place(event: Statement | re.Match[str]) -> tuple[int, int]:
    """Return the sort key of an event: doubt comes before the statement that replaces the
    answer."""
    return (event.start, 1) if isinstance(event, Statement) else (event.start(), 0)
