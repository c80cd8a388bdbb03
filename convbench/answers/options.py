"""Recognise a question's options in a text.

An option is named by its letter, by its text, or by both ("C. marble"); a number in any writing, a
query only in full.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from convbench.answers import wording
from convbench.answers.normalize import normalize_text
from convbench.answers.numbers import Number, is_same_number, number_at, whole_number

Letters = Mapping[str, str] | Collection[str]
"""The options' letters in upper case (a tuple, or a string such as "ABCD"), or their texts by
letter: only then an option's text is read as an answer."""
NOBODY = ""
"""Stands for a letter if two options are named, or a letter with another option's text."""

_CODE = re.compile(r"\s*(?:select|with|insert|update|delete|create)\b", re.IGNORECASE)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_CODE_ENDS = re.compile(
    r"\s*+(?:$|;|[\"'`)\]}]|\.(?=\s|$)|\n\s*\n|\n\s*+```|(?:because|since|which\s+(?:is|gives))\b)"
)
_APART = re.compile(r"[ \t]*+[).:,*_`}(\[–—-]?+[).:*_`(\[ \t–—-]*+")
_IN_BRACKETS = re.compile(r"[\s*_`'\"]*+\((?:option\s+|choice\s+)?(?P<letter>[A-Z])\)", re.I)
_BLANK_AT_SIGN = re.compile(r"(?<=[-+=*/:]) | (?=[-+=*/:])")
_UNKNOWN = re.compile(r"[a-z]\s*=\s*")
_NAME = re.compile(
    r"(?P<first>[^\W\d_a-z][\w.'-]*(?: [^\W\d_a-z][\w.'-]*)*) (?P<last>[^\W\d_a-z][\w'-]{2,})"
)
"""A name of several words; the last one is enough if no other option has it."""
_FIGURES = re.compile(r"(?<![\w.,/])[-$€£]?\d[\d.,]*+")
_JUDGING = {"yes", "no", "true", "false", "correct", "incorrect", "right", "wrong"}
_FENCE = re.compile(r"```[\w+-]*[ \t]*\n?|```")


class NamedOption(NamedTuple):
    """An option, or NOBODY, at a position of a text, and where it ends."""

    letter: str
    end: int
    by_text: bool = False


class Statement(NamedTuple):
    """An option that is stated (NOBODY: two are), where, and how."""

    start: int
    end: int
    letter: str
    firm: bool = True
    would: bool = False
    by_text: bool = False


class OptionMatcher:
    """Recognises the options of one question in texts."""

    def __init__(self, letters: tuple[str, ...], texts: tuple[tuple[str, str], ...]) -> None:
        self.letters = letters
        self._numbers: dict[str, Number] = {}
        self._texts: list[tuple[str, re.Pattern[str]]] = []
        self._codes: dict[str, str] = {}
        plainly = {letter: normalize_text(text).strip() for letter, text in texts}
        unknown = {
            match[0] if (match := _UNKNOWN.match(written)) else "" for written in plainly.values()
        }
        self._unknown = unknown.pop() if len(unknown) == 1 else ""
        surnames = [match["last"] for match in map(_NAME.fullmatch, plainly.values()) if match]
        for letter, written in plainly.items():
            self._add_option(letter, written.removeprefix(self._unknown), surnames)
        self._one_unit = len({number.unit for number in self._numbers.values()}) == 1
        self.judge = any(written.lower().strip(". ") in _JUDGING for written in plainly.values())
        """Whether an option is a verdict itself ("true", "correct")."""

    def _add_option(self, letter: str, written: str, surnames: list[str]) -> None:
        number = whole_number(written)
        if number is not None:
            self._numbers[letter] = number
            return
        if _CODE.match(written):
            self._codes[letter] = bare_code(written)
            self._texts.append((letter, _token_pattern(_TOKEN.findall(written.rstrip("; ")))))
            return
        written = written.strip(".").strip()
        article = wording.ARTICLE.match(written)
        written = written[article.end() :] if article else written
        if written and written.upper() not in self.letters:
            words = _sign_pattern(written) if written[0].isdigit() else _word_pattern(written)
            name = _NAME.fullmatch(written)
            if name and surnames.count(name["last"]) == 1 < len(surnames) == len(self.letters):
                words = rf"(?:{_word_pattern(name['first'])}\s+)?{_word_pattern(name['last'])}"
            pattern = rf"(?<![a-z0-9]){wording.ARTICLES}?{words}(?![a-z0-9])"
            self._texts.append((letter, re.compile(pattern, re.IGNORECASE)))

    def option_at(self, text: str, at: int, link: str = ":") -> NamedOption | None:
        """Return the option that begins at index `at`, after any markup, with the index where it
        ends; None if there is none.

        Its letter is `NOBODY` (empty) if two options are named. `link` is the text before it: after
        a newline a letter must be followed by a mark.
        """
        start = wording.WRAPPED.match(text, at).end()  # type: ignore[union-attr]
        hit = self._by_number(text, start) or self._by_text(text, start)
        if hit is None:
            match = wording.ONE_LETTER.match(text, at)
            hit = self._by_letter(text, match, link) if match else self._by_order(text, at)
        if hit is None or not hit.letter:
            return hit
        return NamedOption(NOBODY, hit.end) if self._names_two(text, hit) else hit

    def _by_number(self, text: str, at: int) -> NamedOption | None:
        if not self._numbers:
            return None
        if self._unknown and (unknown := _UNKNOWN.match(text, at)):
            at = unknown.end()
        written = number_at(text, at - 1 if text[at - 1 : at] == "$" else at)
        if written is None:
            return None
        fit = [
            x
            for x, number in self._numbers.items()
            if is_same_number(written, number, self._one_unit)
        ]
        return (
            self._with_letter(text, NamedOption(fit[0], written.end, True))
            if len(fit) == 1
            else None
        )

    def _by_text(self, text: str, at: int) -> NamedOption | None:
        hit = [
            (match.end(), letter)
            for letter, pattern in self._texts
            if (match := pattern.match(text, at)) and self._text_ends(text, match.end(), letter)
        ]
        if not hit:
            return None
        end = max(hit)[0]
        longest = [letter for stop, letter in hit if stop == end]
        named = NamedOption(longest[0] if len(longest) == 1 else NOBODY, end, True)
        return self._with_letter(text, named)

    def _text_ends(self, text: str, end: int, letter: str) -> bool:
        """Return whether an option's text ends here and nothing continues it."""
        if letter in self._codes:
            return _CODE_ENDS.match(text, end) is not None
        if text[end - 1].isdigit() and wording.GOES_ON.match(text, end):
            return False
        return bool(wording.ENDED.match(text, end) or wording.OR.match(text, end))

    def _by_letter(self, text: str, match: re.Match[str], link: str) -> NamedOption | None:
        letter = match["letter"].upper()
        if match["word"] and letter.isdigit() and letter not in self.letters and not self._numbers:
            letter = self.letters[int(letter) - 1] if 0 < int(letter) <= len(self.letters) else ""
        if letter not in self.letters:
            return None
        apart = _APART.match(text, match.end())
        assert apart is not None
        written = self._by_number(text, apart.end()) or self._by_text(text, apart.end())
        if written is not None and written.letter == letter:
            return NamedOption(letter, written.end)
        if not _stands_alone(text, match, link):
            return None
        joined = apart[0].strip(" \t*_`") in ("(", ")", "):", ":", ".", "")
        other = written and joined and not text[apart.end() : apart.end() + 1].isupper()
        if written and other and wording.CLOSED.match(text, written.end):
            return NamedOption(NOBODY, written.end)
        return NamedOption(letter, match.end())

    def _by_order(self, text: str, at: int) -> NamedOption | None:
        """Return the option that an ordinal names: "the third option"."""
        match = wording.ORDINAL.match(text, at)
        letter = self._letter_in_order(match)
        if match is None or not letter or not wording.CLOSED.match(text, match.end()):
            return None
        return NamedOption(letter, match.end())

    def _letter_in_order(self, ordinal: re.Match[str] | None) -> str:
        """Return the letter of an option by its position in the list, empty if there is none."""
        if ordinal is None:
            return NOBODY
        named = ordinal["place"].lower()
        position = -1 if named == "last" else wording.ORDINALS.index(named)
        return self.letters[position] if position < len(self.letters) else NOBODY

    def _with_letter(self, text: str, named: NamedOption) -> NamedOption:
        """Return the option of a text with a letter after it, "marble (C)"; NOBODY for another
        option's letter."""
        beside = _IN_BRACKETS.match(text, named.end)
        if beside is None or beside["letter"].upper() not in self.letters:
            return named
        alike = beside["letter"].upper() == named.letter
        return NamedOption(named.letter if alike else NOBODY, beside.end(), True)

    def _names_two(self, text: str, hit: NamedOption) -> bool:
        if not hit.by_text:
            return wording.names_two(text, hit.end, self.letters)
        if wording.OR.match(text, hit.end):
            return True
        comma = wording.COMMA.match(text, hit.end)
        if comma is None:
            return False
        second = self._by_number(text, comma.end()) or self._by_text(text, comma.end())
        return second is not None and second.letter != hit.letter

    def option_before(self, text: str, end: int) -> NamedOption | None:
        """Return the option that ends at index `end` (a capital letter, an ordinal, a text or a
        number), or None.

        The result's `end` holds the index where the option begins. Closing marks, commas and blanks
        before `end` are skipped.
        """
        piece = text[max(0, end - 64) : end]
        stop = end - len(piece) + len(piece.rstrip("*_`\"'), "))
        match = wording.LETTER_BEFORE.search(text, max(0, stop - 24), stop)
        if match is not None and match["letter"] in self.letters:
            return NamedOption(match["letter"], match.start())
        order = wording.ORDINAL_BEFORE.search(text, max(0, stop - 24), stop)
        if order and (letter := self._letter_in_order(order)):
            return NamedOption(letter, order.start())
        for letter, pattern in self._texts:
            size = len(pattern.pattern)
            for start in wording.word_starts(text, max(0, stop - size), stop):
                if pattern.fullmatch(text, start, stop):
                    return NamedOption(letter, start, True)
        for start in wording.word_starts(text, max(0, stop - 24), stop) if self._numbers else ():
            named = self._by_number(text[start:stop], 0)
            if named is not None and named.end == stop - start:
                return NamedOption(named.letter, start, True)
        return None

    def sole_option(self, text: str) -> str | None:
        """Return the letter of the option that makes up a text, markup and words such as "so" or "I
        think" aside; None if the text says anything else, names two options or is empty."""
        written = _FENCE.sub(" ", text).strip()
        if self._codes and (code := self.code_option(written)):
            return code
        written = wording.DRESS.sub("", written)
        if not written or len(written) > 2_000:
            return None
        named = self.option_at(written, 0)
        if named is None or not named.letter or not wording.NO_MORE.match(written, named.end):
            return None
        return named.letter

    def is_number(self, letter: str) -> bool:
        """Return whether the text of the option with this letter is a number; False for an unknown
        letter."""
        return letter in self._numbers

    def ends_in_another_number(self, text: str, letter: str) -> bool:
        """Return whether the last figures of a text are not the number of the option `letter`.

        False if the text has no figures.
        """
        figures = [match.start() for match in _FIGURES.finditer(text)]
        named = self._by_number(text, figures[-1]) if figures else None
        return bool(figures) and (named is None or named.letter != letter)

    def code_option(self, written: str) -> str | None:
        """Return the letter of the option whose query is the text, in any layout and case; None if
        no option's is, or several are."""
        bare = bare_code(written)
        fit = [letter for letter, code in self._codes.items() if code == bare]
        return fit[0] if len(fit) == 1 else None

    def last_positions(self, text: str) -> dict[str, int]:
        """Return the last index of each option in a text, by letter; options that do not occur are
        left out.

        An option occurs by its capital letter as a word of its own (never I), or by its text.
        Options that are numbers are found by their letters alone.
        """
        hit = {
            match["letter"]: match.start()
            for match in wording.LETTERS.finditer(text)
            if match["letter"] in self.letters
        }
        for letter, pattern in self._texts:
            for match in pattern.finditer(text):
                hit[letter] = max(hit.get(letter, 0), match.start())
        return hit

    def options_in(self, text: str) -> set[str]:
        """Return the letters of the options whose capital letter, text or number occurs in a text;
        an empty set if none does.

        It has `NOBODY` (empty) if a number is followed by another option's letter in brackets.
        """
        hit = set(self.last_positions(text))
        for start in wording.word_starts(text, 0, len(text)) if self._numbers else ():
            named = (
                self._by_number(text, start)
                if text[start].isdigit() or text[start] in "$€£-"
                else None
            )
            if named is not None:
                hit.add(named.letter)
        return hit


@lru_cache(maxsize=512)
def _cached_matcher(letters: tuple[str, ...], texts: tuple[tuple[str, str], ...]) -> OptionMatcher:
    return OptionMatcher(letters, texts)


def option_matcher(letters: Letters) -> OptionMatcher:
    """Return the recogniser of a question's options; the last 512 are cached, for all replies to a
    question.

    With letters alone no option's text is recognised.
    """
    if isinstance(letters, Mapping):
        return _cached_matcher(tuple(letters), tuple(letters.items()))
    return _cached_matcher(tuple(letters), ())


def _word_pattern(written: str) -> str:
    return r"\s+".join(map(re.escape, written.split()))


def _sign_pattern(written: str) -> str:
    """Return the pattern of a ratio, a range, a time or a term, with any spacing of its signs."""
    ratio = re.fullmatch(r"\d+\s*:\s*\d+", written) is not None
    signs = {"-": r"\s*[-–—]\s*", ":": r"(?:\s*:\s*|\s+to\s+)" if ratio else r"\s*:\s*"}
    pieces = [
        signs.get(piece) or (rf"\s*{re.escape(piece)}\s*" if piece in "+=*/" else re.escape(piece))
        for piece in re.findall(
            r"\w+|[^\w\s]|\s", _BLANK_AT_SIGN.sub("", " ".join(written.split()))
        )
    ]
    return "".join(r"\s+" if piece.isspace() else piece for piece in pieces)


def bare_code(text: str) -> str:
    """Return a query's tokens (words and single signs) in lower case, separated by single blanks,
    without semicolons at the end."""
    return " ".join(_TOKEN.findall(text)).lower().rstrip("; ")


def _token_pattern(tokens: list[str]) -> re.Pattern[str]:
    """Return the pattern of a query's tokens in any layout."""
    words = [re.escape(token) for token in tokens]
    for i in range(1, len(tokens)):
        joined = tokens[i - 1][-1].isalnum() and tokens[i][0].isalnum()
        words[i] = (r"\s+" if joined else r"\s*") + words[i]
    return re.compile("".join(words), re.IGNORECASE)


def _stands_alone(text: str, match: re.Match[str], link: str) -> bool:
    """Return whether a letter is no word: "the answer is a mess", "Answer: A system of tubes"."""
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
