"""The option that a final turn answers with.

Read is every place where the turn, outside thinking blocks, says which option it answers with
(`statements`), in English and the languages of `languages`: "the answer is X" and its variants, a
box, "I choose X", "X is the correct answer", a sentence that ends in "so X", a line or a turn that
is nothing but one option; X is the option's letter, its text, or its number in any writing. Said
under a condition, denied, asked, quoted or ascribed to others it is no answer (`claims`). The last
one counts, and one that is taken back does not (`taken_back`); what follows another turn or another
question is not the reply's (`own_part`). An answer that names two options is none, and in doubt
there is none.

`strict` reads no more than the paper's phrase, "The answer is X" in its usual variants.
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


def final_answer(
    text: str, letters: Letters, carried: bool = False, strict: bool = False
) -> str | None:
    """Return the option's letter that the final turn answers with, None where it names none.

    `text` is the final policy turn, whole. `carried` says that an earlier turn of the same
    speaker left a thinking block open (`left_open`). Pure and cheap, so that it can serve as an
    SQL function.
    """
    options = prepared(letters)
    texts = letters.values() if isinstance(letters, Mapping) else ()
    shown = plain(_STRUCK.sub(" ", visible(text, carried)))
    for piece in own_parts(shown, frozenset(one.strip(" .").lower() for one in texts)):
        found = _answer(piece, options, strict)
        if found is not None:
            return found or None
    return None


def after_marker(
    text: str, marker: str, letters: Letters, carried: bool = False, strict: bool = False
) -> str | None:
    """Return the option in what follows the last `marker`: a bare letter or text will do there.

    Without the marker the whole turn is read as `final_answer` does.
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
    """What the reply answers so far (None: nothing yet, NOBODY: with nothing in its place), and
    since where it is in doubt."""

    letter: str | None = None
    firm: bool = False
    doubted: int | None = None
    end: int = 0
    mixed: bool = False


def _answer(text: str, options: Options, strict: bool) -> str | None:
    """Return the option that one piece answers with, NOBODY where it takes its answer back or
    names two, None where it says nothing."""
    if not strict and (whole := options.whole(text)):
        return whole
    said = statements(text, options, strict)
    if not strict:
        said = sorted({*said, *closing(text, options)})
    last = last_sentence(text)
    low = lower(text)
    taken_back = [match for pattern in WITHDRAWN for match in pattern.finditer(low)]
    doubts = [*taken_back, *DENIED.finditer(low), *DOUBTED.finditer(low)]
    said += [one for doubt in doubts for one in _instead(text, doubt.end(), options)]
    stand = _Stand()
    for event in sorted([*said, *doubts], key=_place):
        if isinstance(event, Statement):
            stand = _after(stand, event, text, last, options)
        elif stand.letter:
            stand = _doubted(stand, event, text, options)
    return _settled(stand, text, options)


def _doubted(stand: _Stand, words: re.Match[str], text: str, options: Options) -> _Stand:
    """Return what the reply answers after words that doubt its answer or take it back."""
    assert stand.letter
    if words.re is DENIED and options.names_another(text[stand.end : words.start()], stand.letter):
        return stand
    letter = stand.letter if words.re is DOUBTED else NOBODY
    return _Stand(letter, stand.firm, words.end(), stand.end)


def _place(event: Statement | re.Match[str]) -> int:
    return event.start if isinstance(event, Statement) else event.start()


def _instead(text: str, at: int, options: Options) -> Iterator[Statement]:
    """Yield the option that stands right behind words that take another one back."""
    start = INSTEAD.match(text, at).end()  # type: ignore[union-attr]
    named = options.named_at(text, start)
    if named and named.letter and wording.FINISHED.match(text, named.end):
        yield Statement(at, named.end, named.letter, False)


def _after(stand: _Stand, said: Statement, text: str, last: int, options: Options) -> _Stand:
    """Return what the reply answers after one more statement."""
    if stand.doubted is not None:
        return _Stand(said.letter, True, None, said.end)
    rest = text[said.end :]
    counted = said.by_text and text[said.end - 1].isdigit()
    closes = said.start >= last or not (counted or options.names_another(rest, said.letter))
    if not said.firm and said.by_text and not closes:
        return stand
    if not stand.letter:
        return _Stand(said.letter, said.firm, None, said.end)
    if said.letter == stand.letter:
        return stand._replace(firm=stand.firm or said.firm, end=said.end)
    if said.firm:
        return stand if said.would and stand.firm else _Stand(said.letter, True, None, said.end)
    if not stand.firm:
        return _Stand(said.letter, False, None, said.end, not closes)
    return _Stand(NOBODY, True) if closes and not said.by_text else stand


def _settled(stand: _Stand, text: str, options: Options) -> str | None:
    """Return what it comes to: in doubt, or between two that are only said softly, nothing."""
    if stand.mixed:
        return NOBODY
    if stand.letter and stand.doubted is not None:
        rest = text[stand.doubted :]
        unsure = UNSURE.search(rest) or options.names_another(rest, stand.letter)
        return NOBODY if unsure else stand.letter
    return stand.letter
