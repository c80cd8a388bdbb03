"""Read the option that a final turn states in the phrase that protocols prescribe.

Read are "The answer is X" in its typographic dress, a LaTeX box, a heading "Answer" above X, and a
last line or fenced block that is nothing but X. X is an option's letter or its text. Everything
else is unread, and so is a turn that states two options or takes its answer back at once: what a
free wording means is for a model to read (judge `answers@MODEL`). Time is linear in the text.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

_SIGNS = str.maketrans({"“": '"', "”": '"', "’": "'", "‘": "'", "–": "-", "−": "-", "—": " - "})
_MARKUP = re.compile(
    r"(?i)\\(?:text|math)(?:bf|rm|it)? ?\{|\\[()\[\]]|[*_`$]"
    r"|</?(?:b|strong|em|i|u|code|answer)\b[^<>]{0,80}>"
)
_CHAT_MARK = r"(?:<{1,2}/?SYS>{1,2}|«/?SYS»|\[/?(?:INST|SYS)\]|<\|[^|\n]{1,40}\|>|</?s>)"
_NEXT_TURN = re.compile(
    rf"(?i){_CHAT_MARK}|\n[ \t#>-]*+(?:(?:next |new |another )?(?:question|problem|exercise|user"
    r"|human|student|teacher|assistant|instruction|response)\s?\d{0,3}\s?[.:])"
)
_PHRASE = re.compile(
    r"(?im)(?<![\w'-])(?:(?:final |correct |right |best ){0,2}answer(?: letter| choice| option)?"
    r"|(?:final |correct |right |best ){1,2}(?:option|choice))(?: (?:to|for) this[\w -]{0,30}?)?"
    r"(?:\s+(?:is|remains)\b(?: (?:therefore|thus|still|clearly|indeed))?\s*:?|'s\s|\"?\s*[:=]|\s-)"
    r"|^[ \t#>-]*(?:(?:the|my) )?(?:final |correct )?answer[ \t]*$|\\f?boxed ?\{"
)
_OF_OTHERS = re.compile(
    r"(?i)\b(?:if|unless|suppos\w+|whether|assum\w+|according|students?|teachers?|friend|tutors?)\b"
)
_DENIED = re.compile(
    r"(?i)\b(?:not|never|cannot|wrong|incorrect|doubt|may|might|could|would|another|some|you|your"
    r"|he|his|she|her|they|their|said|says|thought|thinks|claim\w*)\b|n't\b"
)
_ASKED = re.compile(r"[^.!\n?]{0,80}\?")
_TAKEN_BACK = re.compile(
    r"(?i)[^\n.!?]{0,60}?[.!?,(…\n-]++\s*+(?:(?:oh|but|no|actually),?\s+)?(?:wait\b|hold on\b|hm+\b"
    r"|(?:scratch|strike|forget) that|correction\b|edit:|no,? (?:that|it|sorry)|actually,? no\b"
    r"|sorry, (?:no|i|that)\b|let me re(?:consider|think|vise)|on (?:second|closer|reflection)\b"
    r"|(?:actually, )?i (?:was wrong|changed? my|take that back))"
)


def read_option(speech: str, options: Mapping[str, str], *, at_start: bool = False) -> str | None:
    """Return the letter of the option that a final turn states; None if it is unread.

    `speech` is the turn without thinking, `options` are the options' texts by letter. `at_start`
    says that a marker went before, so that an option at the very start is an answer.
    """
    if not options:
        return None
    shown, named = _own_part(_plain(speech)), _Options(tuple(options.items()))
    stated = [(0, named.at(shown, 0))] if at_start else []
    for phrase in _PHRASE.finditer(shown):
        before = re.split(r"[.!?;]\s|\n", shown[max(0, phrase.start() - 160) : phrase.start()])[-1]
        clause = re.split(r"[,:]|\b(?:so|therefore|thus|hence|because|but)\b", before)[-1]
        end, denied = phrase.end(), _OF_OTHERS.search(before) or _DENIED.search(clause)
        stated += [] if denied or _ASKED.match(shown, end) else [(end, named.at(shown, end))]
    lines = [line.strip(" \t#>|-") for line in shown.rsplit("\n", 6)]
    *before_last, last = [named.at(line, 0, alone=True) for line in lines if line][-2:] or [set()]
    if not before_last or before_last[0] <= last:  # else a list of options ends here
        stated.append((len(shown), last))
    letters = set[str]().union(*(found for _, found in stated))
    if len(letters) != 1 or _TAKEN_BACK.match(shown, max(end for end, found in stated if found)):
        return None
    return letters.pop()


def _plain(text: str) -> str:
    """Return a text without markup, with plain quotes, dashes and letters."""
    text = unicodedata.normalize("NFKC", html.unescape(text)).translate(_SIGNS)
    return _MARKUP.sub("", re.sub(r"(?i)</?(?:p|br)\b[^<>]{0,80}>", "\n", text))


def _own_part(text: str) -> str:
    """Return the turn without chat marks at its head, up to another turn or question."""
    text = re.sub(rf"(?i)\A(?:\s*+{_CHAT_MARK})*+\s*+", "", text)
    return _NEXT_TURN.split(text, maxsplit=1)[0].rstrip()


@lru_cache(maxsize=1024)
class _Options:
    """The options of one question, found where they stand in a text."""

    def __init__(self, options: tuple[tuple[str, str], ...]) -> None:
        self._letters = {letter.lower(): letter for letter, _ in options}
        self._by_key = {_key(_plain(text)): letter for letter, text in options}
        verb = r"(?! +(?!(?:because|since|as|for|is|and|in|so|but|which|from|with)\b)[a-z])"
        upper = "|".join(re.escape(x) + (verb if x in ("A", "I") else "") for x, _ in options)
        lower = "|".join(map(re.escape, self._letters)) + r")(?=[\"')\].,;:]| because|\s*$"
        letter = rf"((?:{upper}|(?:{lower})))(?![\w+#°♭-]|'\w|\.\w\b)"
        texts = "|".join(map(re.escape, sorted(filter(None, self._by_key), key=len)[::-1]))
        texts = re.sub(r"\b[1-9]\d{3,14}\b", _in_thousands, texts.replace("\\ ", r"\s+")) or "(?!)"
        text = rf"(?i:(?:an? |the )?({texts})"
        text += r"(?=\s*(?:$|[;!?)\]}\"'(]|[.,:](?!\d)|- (?!\d)|(?:because|since|as|for)\b)))"
        lead = r"[\s\"'(\[{«]*+(?i:(?:the )?(?:option|choice|letter)[ :]*+[\"'(\[{«]*+)?"
        self._option = re.compile(
            rf"(?m){lead}(?:{text}|{letter}(?:[\"')\].:]*+\s?(?:- )?{text})?)"
        )
        self._second = re.compile(
            r"(?m)[\"')\]}.]*+\s*+(?:[,;/&|+]|\(?or\b|and\b)(?:/or)?\s*"
            rf"(?:(?:or|and|maybe|option) )*+[\"'(\[]*+{letter}(?!\s+(?:is|was|are)\b)"
        )

    def at(self, text: str, start: int, *, alone: bool = False) -> set[str]:
        """Return the options that a text names at an index: one, two together, or none; with
        `alone` none if it says more than that."""
        found = self._option.match(text, start)
        if found is None or (alone and text[found.end() :].strip(" .)]}\"'")):
            return set()
        second = self._second.match(text, found.end())
        letters = (found[2], second[1] if second else None)
        named = {self._letters[letter.lower()] for letter in letters if letter}
        keys = {_key(name) for name in (found[1], found[3]) if name}
        return named | {self._by_key[key] for key in keys if key in self._by_key}


def _in_thousands(number: re.Match[str]) -> str:
    return f"{int(number[0]):,}".replace(",", ",?")


def _key(text: str) -> str:
    """Return a text for comparison: in lower case, without article and stop, `1,200` as `1200`."""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", " ".join(text.lower().split()).strip(" .;\"'[]{}"))
    return re.sub(r"^(?:an?|the) ", "", text)
