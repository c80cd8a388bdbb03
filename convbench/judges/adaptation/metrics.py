"""Grade free answers without a model: by recall of the gold answer's words, exact match, word
overlap, or containment.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from convbench.answers.tags import without_thinking

VERSION = 3
"""Raised whenever a grade may move."""
ENOUGH = 0.6
"""Smallest share of the gold answer's words in a right answer, which must have all its numbers."""
LEAST, SHARE = 5, 0.7
"""Two words are similar if they begin with this many equal letters, and this share of the longer
one: plural, past tense, and noun for adjective."""

_DECADE = re.compile(r"(\d{3})0s")
_ERAS = {"bce": "bc", "ce": "ad"}
_WORD = re.compile(r"\d+(?:\.\d+)?(?:st|nd|rd|th|s)?(?![a-z])|[a-z0-9]+")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?:st|nd|rd|th|s)?")
_OR = re.compile(r"\bor\b", re.IGNORECASE)
_ASIDE = re.compile(r"\([^)]*\)?")
_SILENT = (
    "a about all also an and any approximately are around as at be been being but by did do does "
    "during for from had has have he her his if in into is it its many more much near nearly no "
    "not of on or other over she so some such than that the their them there these they this "
    "those through to under up was were which who whom with within almost onward onwards since "
    "until till later alone only just either"
)
"""Words without information about an answer."""
_CARDINALS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = (
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
    "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
_TITLES = (
    "sir lord lady dr mr mrs ms prof professor rev reverend captain major general colonel "
    "lieutenant sergeant admiral commander"
)
"""Titles of persons, which an answer may leave out."""
_EMPTY, _TITLE = frozenset(_SILENT.split()), frozenset(_TITLES.split())
_VALUES = {
    word: number for names in (_CARDINALS, _ORDINALS) for number, word in enumerate(names.split())
} | {word: 10 * number for number, word in enumerate(_TENS, 2)}
del _VALUES["second"]  # of time, more often


def recall_grade(reply: str, golds: Sequence[str], question: str = "") -> float:
    """Return 1 if the reply, without its thoughts, has at least 0.6 of the words of one gold answer
    and all its numbers, else 0.

    Words count as equal if they begin alike (plural, tense). Words without information do not
    count, nor titles of persons, nor those that the question has already (if others are left), nor
    text of the gold answer in brackets. Of "Rome or Milan" either is enough.
    """
    reply_words = frozenset(normal_words(without_thinking(reply)))
    question_words = frozenset(normal_words(question))
    right = (part for gold in golds for part in _gold_alternatives(gold))
    return (
        float(any(_held_share(part, reply_words, question_words) >= ENOUGH for part in right))
        if reply_words
        else 0.0
    )


def _gold_alternatives(gold: str) -> list[str]:
    """Return a gold answer and, if it has an "or", the informative parts on either side."""
    parts = _OR.split(_ASIDE.sub("", gold))
    telling = [part for part in parts if not _EMPTY.issuperset(normal_words(part))]
    return [gold, *telling] if len(parts) > 1 else [gold]


def _held_share(gold: str, reply_words: frozenset[str], question_words: frozenset[str]) -> float:
    """Return the share of a gold answer's words that are among the reply's; 0 without words, or if
    a number is missing."""
    gold_words = list(dict.fromkeys(normal_words(_ASIDE.sub("", gold)) or normal_words(gold)))
    telling = [word for word in gold_words if word not in _EMPTY] or gold_words
    telling = [word for word in telling if word not in _TITLE] or telling
    new = [word for word in telling if not _is_among(word, question_words)] or telling
    held = [_is_among(word, reply_words) for word in new]
    if any(word[0].isdigit() and not is_held for word, is_held in zip(new, held, strict=True)):
        return 0.0
    return sum(held) / len(new) if new else 0.0


def normal_words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case, without accents and punctuation.

    Numbers and ordinals in words become digits ("twenty-five" 25, "third" 3), and eras have one
    name (bc, ad).
    """
    return list(_join_numbers(_ascii_text(text)))


def _ascii_text(text: str) -> str:
    """Return a text in lower case without accents, possessives, and commas in numbers."""
    letters = unicodedata.normalize("NFKD", text.replace("’", "'")).lower()
    bare = "".join(sign for sign in letters if not unicodedata.combining(sign))
    bare = re.sub(r"(?<=\d),(?=\d{3})", "", bare)
    bare = re.sub(r"(?<=\d)'s\b", "s", bare)
    bare = re.sub(r"'s\b", "", bare)
    bare = re.sub(r"\b([a-z])\.\s?(?=[a-z]\b)", r"\1", bare)  # U.S., T. J.
    return bare.replace("%", " percent ").replace("$", " dollar ").replace("per cent", "percent")


def _join_numbers(text: str) -> Iterator[str]:
    """Yield the words of a text, with numbers in words as digits."""
    ten = 0
    for word in _WORD.findall(text):
        word = _ERAS.get(word, word)
        number = None if _DECADE.fullmatch(word) else _NUMBER.fullmatch(word)
        if number is not None:
            named, word = None, number[1].lstrip("0") or "0"
        else:
            named = _VALUES.get(word)
        if ten:
            if named is not None and 0 < named < 10:
                yield str(ten + named)
                ten = 0
                continue
            yield str(ten)
            ten = 0
        if named is not None and word in _TENS:
            ten = named
        else:
            yield word if named is None else str(named)
    if ten:
        yield str(ten)


def _is_among(word: str, others: frozenset[str]) -> bool:
    return word in others or any(_are_alike(word, other) for other in others)


@lru_cache(maxsize=65536)
def _are_alike(first: str, second: str) -> bool:
    if first[0].isdigit() or second[0].isdigit():
        return first == second or _in_decade(first, second) or _in_decade(second, first)
    same = 0
    for a, b in zip(first, second, strict=False):
        if a != b:
            break
        same += 1
    return same >= max(LEAST, SHARE * max(len(first), len(second)))


def _in_decade(year: str, decade: str) -> bool:
    """Return whether a year is in a decade: 1642 in the 1640s."""
    years = _DECADE.fullmatch(decade)
    return years is not None and len(year) == 4 and year.isdigit() and year.startswith(years[1])


_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MARK = re.compile(r"\banswer(?: is|:)\s*", re.IGNORECASE)
_STRIP = str.maketrans("", "", string.punctuation + "–—’‘“”")


def answer_text(reply: str) -> str:
    """Return the answer in a reply, outside its thoughts: the rest of the line after its last
    "answer is" or "answer:", else its first line that is not empty; "" for an empty reply."""
    reply = without_thinking(reply)
    marks = list(_MARK.finditer(reply))
    if marks:
        return reply[marks[-1].end() :].split("\n")[0].strip()
    return next((line.strip() for line in reply.splitlines() if line.strip()), "")


def normal_text(text: str) -> str:
    """Return a text in lower case, without punctuation, articles and double spaces (SQuAD)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_STRIP)).split())


def exact_grade(reply: str, golds: Sequence[str]) -> float:
    """Return 1 if the answer (`answer_text`) equals one of the gold ones after SQuAD's
    normalisation, else 0; 0 if it is empty."""
    answer = normal_text(answer_text(reply))
    return float(bool(answer) and answer in {normal_text(gold) for gold in golds})


def f1_grade(reply: str, golds: Sequence[str]) -> float:
    """Return the F1 of the answer's words against the gold answer that gives the highest, 0 to 1,
    after SQuAD's normalisation; 0 without gold answers."""
    return max(
        (_word_f1(normal_text(answer_text(reply)).split(), normal_text(g).split()) for g in golds),
        default=0,
    )


def contains_grade(reply: str, golds: Sequence[str]) -> float:
    """Return 1 if the reply, outside its thoughts, contains the words of a gold answer in sequence
    after SQuAD's normalisation, else 0."""
    words = f" {normal_text(without_thinking(reply))} "
    return float(any(normal_text(gold) and f" {normal_text(gold)} " in words for gold in golds))


def _word_f1(reply_words: list[str], gold: list[str]) -> float:
    shared = sum((Counter(reply_words) & Counter(gold)).values())
    if not shared:
        return 0.0
    precision, gold_share = shared / len(reply_words), shared / len(gold)
    return 2 * precision * gold_share / (precision + gold_share)


GRADES: Mapping[str, Callable[[str, Sequence[str], str], float]] = {
    "recall": recall_grade,
    "exact": lambda reply, golds, question: exact_grade(reply, golds),
    "f1": lambda reply, golds, question: f1_grade(reply, golds),
    "contains": lambda reply, golds, question: contains_grade(reply, golds),
}
"""Grades without a model, as functions of a reply, the gold answers and the question."""
