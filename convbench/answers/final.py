"""The option that a final turn answers with.

Every place outside thinking blocks is read where the turn says which option it answers with
(`find_statements`), in English and the languages of `languages`: "the answer is X" and its
variants, a box, "I choose X", "X is the correct answer", a sentence that ends in "so X", a line or
a turn that is nothing but one option. X is the option's letter, its text, or its number in any
writing. What is conditional, denied, asked, quoted or ascribed to others is no answer (`claims`).
The last answer counts, and one that is retracted does not; what follows another turn or another
question is not the reply's (`own_part`). An answer that names two options is none, and in doubt
there is none.

`strict` reads only the paper's phrase, "The answer is X" in its usual variants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from convbench.answers import wording
from convbench.answers.normalize import lower_case, normalize_text
from convbench.answers.options import NOBODY, Letters, OptionMatcher, Statement, option_matcher
from convbench.answers.own_part import own_parts
from convbench.answers.retractions import DENIED, DOUBTED, INSTEAD, UNSURE, WITHDRAWN
from convbench.answers.statements import closing_statements, find_statements, last_sentence
from convbench.answers.tags import without_thinking

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
    """Return the letter of the option that the final turn answers with.

    None if it names no option, names two, takes its answer back without another, or stays in doubt.
    `text` is the complete final policy turn. `carried` says that an earlier turn of the same
    speaker left a thinking block open. With `strict` only "The answer is X" in its variants counts.
    """
    options = option_matcher(letters)
    texts = letters.values() if isinstance(letters, Mapping) else ()
    spoken = _ticks_in_words(_STRUCK.sub(" ", without_thinking(text, carried)))
    shown = normalize_text(_CROSSED.sub("", spoken) if _TICK.search(spoken) else spoken)
    for piece in own_parts(
        shown, frozenset(option_text.strip(" .").lower() for option_text in texts)
    ):
        letter = _piece_answer(piece, options, strict)
        if letter is not None:
            return letter or None
    return None


def _ticks_in_words(text: str) -> str:
    """Return the text with the ticks and crosses of a list of options as "yes" and "no"."""
    if len(_MARKED.findall(text)) < 2:
        return text
    return _MARKED.sub(lambda mark: mark["item"] + (": yes;" if mark["tick"] else ": no;"), text)


def after_marker(
    text: str, marker: str, letters: Letters, carried: bool = False, strict: bool = False
) -> str | None:
    """Return the letter of the option named after the last `marker` outside thinking; None if none
    is, or two are.

    The text after the marker is read as by `final_answer`; if that finds nothing, an option at its
    very beginning counts. Without the marker the complete turn is read by `final_answer`.
    """
    shown = without_thinking(text, carried)
    _, marked, rest = shown.rpartition(marker)
    rest = rest if marked else shown
    letter = final_answer(rest, letters, strict=strict)
    if letter is not None or not marked:
        return letter
    named = option_matcher(letters).option_at(normalize_text(rest), 0)
    return named.letter or None if named else None


class _AnswerState(NamedTuple):
    """The answer so far (None: nothing yet, NOBODY: retracted without another), whether it is firm,
    since where it is in doubt, and where it was said last."""

    letter: str | None = None
    firm: bool = False
    doubted: int | None = None
    end: int = 0
    mixed: bool = False


def _piece_answer(text: str, options: OptionMatcher, strict: bool) -> str | None:
    """Return the option that one piece answers with, NOBODY if it retracts its answer or names two,
    None if it says nothing."""
    if not strict and (letter := options.sole_option(text)):
        return letter
    return _PieceReader(text, options, strict).read_answer()


class _PieceReader:
    """Reads one piece of a reply from its first statement to its last."""

    def __init__(self, text: str, options: OptionMatcher, strict: bool) -> None:
        self._text, self._options, self._strict = text, options, strict
        self._last = last_sentence(text)
        self._named = options.last_positions(text)

    def read_answer(self) -> str | None:
        """Return the piece's answer: none if it stays in doubt, or between two that are said
        softly."""
        stand = _AnswerState()
        for event in self._find_events():
            if isinstance(event, Statement):
                stand = self._apply_statement(stand, event)
            elif stand.letter:
                stand = self._apply_doubt(stand, event)
        if stand.mixed:
            return NOBODY
        if stand.letter and stand.doubted is not None:
            unsure = UNSURE.search(self._text, stand.doubted)
            return (
                NOBODY
                if unsure or self._names_another(stand.doubted, stand.letter)
                else stand.letter
            )
        return stand.letter

    def _find_events(self) -> list[Statement | re.Match[str]]:
        """Return statements, and words that retract or doubt them, in order."""
        events = find_statements(self._text, self._options, self._strict)
        if not self._strict:
            events += closing_statements(self._text, self._options)
        low = lower_case(self._text)
        doubts = [m for words in (*WITHDRAWN, DENIED, DOUBTED) for m in words.finditer(low)]
        events += [
            statement for doubt in doubts for statement in self._replacement_statements(doubt.end())
        ]
        return sorted({*events, *doubts}, key=_event_order)

    def _replacement_statements(self, at: int) -> Iterator[Statement]:
        """Yield the option that directly follows words of retraction."""
        start = INSTEAD.match(self._text, at).end()  # type: ignore[union-attr]
        named = self._options.option_at(self._text, start)
        if named and named.letter and wording.FINISHED.match(self._text, named.end):
            yield Statement(at, named.end, named.letter, False)

    def _names_another(self, at: int, letter: str) -> bool:
        """Return whether another option is named at a position or after it."""
        return any(position >= at for other, position in self._named.items() if other != letter)

    def _apply_doubt(self, stand: _AnswerState, words: re.Match[str]) -> _AnswerState:
        """Return the state after words that doubt or retract the answer."""
        if words.re is DENIED and words.start() - stand.end > _NEAR:
            return stand
        letter = stand.letter if words.re is DOUBTED else NOBODY
        return _AnswerState(letter, stand.firm, words.end(), stand.end)

    def _apply_statement(self, stand: _AnswerState, statement: Statement) -> _AnswerState:
        """Return the state after one more statement."""
        now = _AnswerState(statement.letter, statement.firm, None, statement.end)
        if stand.doubted is not None:
            return now._replace(firm=True)
        counted = statement.by_text and self._text[statement.end - 1].isdigit()
        closes = statement.start >= self._last or not (
            counted or self._names_another(statement.end, statement.letter)
        )
        if not statement.firm and statement.by_text and not closes:
            return stand
        if not stand.letter:
            return now
        if statement.letter == stand.letter:
            return stand._replace(firm=stand.firm or statement.firm, end=statement.end)
        if statement.firm:
            return stand if statement.would and stand.firm else now
        if not stand.firm:
            return now._replace(mixed=not closes)
        return _AnswerState(NOBODY, True) if closes and not statement.by_text else stand


def _event_order(event: Statement | re.Match[str]) -> tuple[int, int]:
    """Return the sort key of an event: doubt comes before the statement that replaces the
    answer."""
    return (event.start, 1) if isinstance(event, Statement) else (event.start(), 0)
