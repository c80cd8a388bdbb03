"""Find where a sentence names a question's options: by letter, text or position in the list."""

from __future__ import annotations

import re
from functools import lru_cache

from convbench.answers.normalize import normalize_text
from convbench.answers.numbers import NUMBER_VALUES, NUMBER_WORDS, TENS
from convbench.schema import Example

GOLD, GOLD_BY_TEXT, GOLD_BY_LETTER, OTHER = "[◆◈]", "◆", "◈", "◇"
"""A pattern of a marked gold option, its two marks, and the mark of any other."""
SIGN = "[\ue000-\uefff]"
"""A pattern of any option in a text where each has its own sign (`sign_options`)."""
_BY_TEXT, _BY_LETTER = 0xE000, 0xE800
"""The signs of the first option, named by its text and by its letter or place."""

_ONES = NUMBER_WORDS[:20]
_BELOW_100 = rf"(?:(?:{'|'.join(TENS)})(?:[- ](?:{'|'.join(_ONES[1:10])}))?|{'|'.join(_ONES[1:])})"
_NUMBER = re.compile(
    rf"(?<![\w-])(?:(?P<hundreds>{_BELOW_100}) hundred(?:(?: and)? (?P<rest>{_BELOW_100}))?"
    rf"|(?P<small>{_BELOW_100}))(?![\w-])",
    re.IGNORECASE,
)

_LETTER_A = (
    r"A(?=\s*(?:[,.;:)!?]|$|(?:is|isn['’]t|can|cannot|can['’]t|and|or|nor|are|does|doesn['’]t|has"
    r"|was|fails?)\b))"
)
_LETTERS = (
    r"(?<![Vv]itamin )(?<!ype )(?<!lass )(?<!roup )(?<!hase )(?<!epatitis )"
    rf"(?<![\w'’-])(?:[B-HJ-Z](?![\w'’-])|{_LETTER_A})"
    r"|(?<=[Oo]ption )A\b|(?<=[Cc]hoice )A\b|(?<=[Ss]tatement )A\b"
)
_DRESSED = r"(?:(?i:\b(?:the|an?) )?(?i:\b(?:option|choice|letter|statement) )?)[\"'“‘*_(\[]{0,3}"

_PLACES = {
    "first": 0,
    "top": 0,
    "1st": 0,
    "second": 1,
    "2nd": 1,
    "third": 2,
    "3rd": 2,
    "fourth": 3,
    "4th": 3,
    "fifth": 4,
    "5th": 4,
    "last": -1,
    "final": -1,
    "bottom": -1,
    "penultimate": -2,
}
_ORDINAL = re.compile(
    r"\b(?<!\byour )(?<!\bmy )(?<!\ba )(?:the )?(?:very )?(?!final (?:answer|choice)\b)"
    rf"(?P<nth>{'|'.join(_PLACES)})(?: \w+)? (?:option|choice|answer|line|row"
    r"|item|entry|one|box|square|circle|bubble|possibility|alternative|letter|position|place|candidate|bullet|suggestion"
    r"|statement)\b(?: (?:of|on|in|from|down)(?: \w+){1,3})?"
    rf"|\b(?P<from_end>{'|'.join(_PLACES)}) (?:of|on|in|from) (?:\w+ )?"
    r"(?P<end>list|options|choices|4|sheet|bottom|top|end|page|answers)\b",
    re.IGNORECASE,
)


_NEIGHBOUR = re.compile(
    r"\b(?:one|letter|option|line|row|what|whatever)(?: that| which)?"
    r"(?: sits| is| stands| lies| comes)? (?:(?:right|just|directly|immediately) )?"
    r"(?:(?P<between>between)|(?P<ahead>before|above|precedes)|after|below|follows)"
    r" (?:option )?(?:(?P<beside>[A-H])(?(between) and (?P<end>[A-H]))"
    rf"|(?:the )?(?P<nth>{'|'.join(_PLACES)})(?: one| line| option| row)?)\b"
)
"""An option named by its neighbours."""

_AFTER = {
    "and",
    "but",
    "for",
    "which",
    "that",
    "because",
    "since",
    "here",
    "then",
    "now",
    "not",
    "correct",
    "right(?! ang)",
    "maybe",
    "perhaps",
    "was",
    "would",
    "must",
    "will",
    "has",
    "left",
    "too",
    "more",
    "alto",
    "exac",
    "inst",
    "rath",
    "with",
    "nor",
    "multi",
    "divi",
    "times",
    "plus",
    "minus",
    "per",
}
"""Beginnings of words after a number that it does not count."""


def number_words(text: str) -> str:
    """Return the text with number words up to "ninety-nine hundred ninety-nine" as digits; "one"
    alone stays a word."""

    def to_digits(match: re.Match[str]) -> str:
        if match["small"]:
            return match[0] if match[0].lower() == "one" else str(_below_100(match["small"]))
        return str(100 * _below_100(match["hundreds"]) + _below_100(match["rest"] or "zero"))

    return _NUMBER.sub(to_digits, text)


_RADIO = re.compile(
    r"\b(mark|tick|choose|pick|select|circle|underline|option|letter|answer is|go (?:with|for)) "
    r"(alfa|alpha|bravo|charlie|delta|echo)\b(?! \w+ (?:particle|ray|wave|decay))",
    re.IGNORECASE,
)


def radio_letters(text: str) -> str:
    """Return the text with "alfa" to "echo" as letters A to E where they are chosen ("pick bravo"
    becomes "pick B"); other uses are unchanged."""
    return _RADIO.sub(lambda match: f"{match[1]} {match[2][0].upper()}", text)


def _below_100(words: str) -> int:
    return sum(NUMBER_VALUES[word] for word in re.split("[- ]", words.lower()))


def mark_options(sentence: str, example: Example) -> tuple[str, set[str]]:
    """Return (the sentence with its options marked, the set of labels that it names).

    The gold option becomes ◆ if named by its text and ◈ if by its letter or position, any other
    option ◇. Adjacent marks of the gold option become one. White space is collapsed.
    """
    read = sign_options(sentence, example)
    gold = example.letters.index(example.answer) if example.answer in example.letters else -1
    gold_signs = {chr(_BY_TEXT + gold): GOLD_BY_TEXT, chr(_BY_LETTER + gold): GOLD_BY_LETTER}
    words = re.sub(SIGN, lambda sign: gold_signs.get(sign[0], OTHER), read)
    words = re.sub(rf"{GOLD}(?:[^\w{OTHER}]{{0,3}}{GOLD})+", lambda many: many[0][-1], words)
    return words, set(labels_in(read, example))


def labels_in(read: str, example: Example) -> list[str]:
    """Return the labels of the options in a sentence from `sign_options`, each once, in order."""
    places = [(ord(sign) - _BY_TEXT) % (_BY_LETTER - _BY_TEXT) for sign in re.findall(SIGN, read)]
    return list(dict.fromkeys(example.letters[place_in_list] for place_in_list in places))


def sign_options(sentence: str, example: Example) -> str:
    """Return a sentence in which each option's name is replaced by that option's sign, a
    private-use character.

    An option has two signs: one if named by its text, one if by its letter, position or neighbour.
    Signs and marks that the sentence had are removed, and white space is collapsed.
    """
    pattern, labels = _name_pattern(
        tuple((c.label, c.text) for c in example.choices), example.question
    )
    letters = [choice.label for choice in example.choices]

    def sign_of(label: str, by_letter: bool) -> str:
        return chr((_BY_LETTER if by_letter else _BY_TEXT) + letters.index(label))

    def option_in_list(match: re.Match[str]) -> str:
        label = _label_at(match, letters)
        return sign_of(label, True) if label else match[0]

    def option_beside(match: re.Match[str]) -> str:
        if match["nth"]:
            place_in_list = _PLACES[match["nth"]]
            beside = place_in_list + (len(letters) if place_in_list < 0 else 0)
        else:
            beside = letters.index(match["beside"]) if match["beside"] in letters else -2
        at = beside + (-1 if match["ahead"] else 1)
        if not 0 <= at < len(letters) or (
            match["end"] and [match["end"]] != letters[at + 1 : at + 2]
        ):
            return match[0]
        return sign_of(letters[at], True)

    def sign_name(match: re.Match[str]) -> str:
        words = " ".join((match["text"] or match["letter"]).split())
        label = labels.get(words) or labels.get(words.lower()) or labels.get(_word_stems(words), "")
        return sign_of(label, bool(match["letter"])) if label else match[0]

    clean = " ".join(re.sub(rf"[◆◇◈]|{SIGN}", " ", sentence).split())
    return pattern.sub(
        sign_name, _ORDINAL.sub(option_in_list, _NEIGHBOUR.sub(option_beside, clean))
    )


def _label_at(match: re.Match[str], labels: list[str]) -> str:
    """Return the label at the position that is spoken of, or an empty text if there is none."""
    position = _PLACES[(match["nth"] or match["from_end"]).lower()]
    if (match["end"] or "").lower() in ("bottom", "end"):
        position = -1 - position
    return labels[position] if -len(labels) <= position < len(labels) else ""


@lru_cache(maxsize=512)
def _name_pattern(
    choices: tuple[tuple[str, str], ...], question: str
) -> tuple[re.Pattern[str], dict[str, str]]:
    """Return the pattern of all names of options, and the label of each name."""
    labels = {label: label for label, _ in choices}
    names: list[str] = []
    for label, text in choices:
        for name in _option_spellings(text, [t for _, t in choices if t != text], question):
            if name.upper() not in labels:
                labels.setdefault(name.lower(), label)
                names.append(name)
    bare = all(text.strip()[-1:].isdigit() for _, text in choices)
    nouns = "|".join({word[:4] for word in re.findall(r"[a-z]{3,}", question.lower())} | _AFTER)
    longest = sorted(names, key=len, reverse=True)
    stems = [_word_stems(text) for _, text in choices]
    inflected = {
        stem: label
        for stem, (label, text) in zip(stems, choices, strict=True)
        if stem.count(" ") and stems.count(stem) == 1 and re.fullmatch(r"[^\W\d][\w\s'-]*", text)
    }
    labels = inflected | labels
    texts = "|".join(_spelling_pattern(name, nouns if bare else "") for name in longest) or "(?!)"
    for stem in inflected:
        texts += r"|\b" + r"\s+".join(rf"{word}\w*" for word in stem.split())
    return re.compile(
        rf"{_DRESSED}(?:(?P<text>(?i:{texts}))s?(?!\w)|(?P<letter>{_LETTERS}))[\"'”’*_)\]]{{0,3}}"
    ), labels


def _word_stems(text: str) -> str:
    """Return the first letters of each word of a name, so that inflections are equal."""
    words = re.sub(r"^(?:an?|the)\s+", "", text.lower().rstrip(".")).split()
    return " ".join(word[:4] for word in words)


def _option_spellings(text: str, others: list[str], question: str) -> list[str]:
    """Return an option's text without its article, and the proper names and the number in it that
    neither another option nor the question has."""
    words = re.sub(
        r"^(?:an?|the)\s+",
        "",
        " ".join(normalize_text(text).split()).rstrip("."),
        flags=re.IGNORECASE,
    )
    if not words or (words[0].isdigit() and words in question.split()):
        return []
    rest = " ".join([*others, question]).lower()
    names = [words]
    if 1 < len(words.split()) < 5:
        proper = re.findall(r"\b[^\W\d_a-z]\w{2,}", words)
        names += [word for word in proper if word.lower() not in rest]
    numbers = re.findall(r"\d+(?:[.,]\d+)*", words)
    if len(numbers) == 1 and len(words.split()) < 4:
        names += [] if numbers[0] in re.findall(r"\d+(?:[.,]\d+)*", rest) else numbers
    return list(dict.fromkeys(names))


def _spelling_pattern(name: str, nouns: str) -> str:
    """Return the pattern of a name; a number's groups may be separated by commas.

    A number before a word that begins with none of `nouns` counts something else, if there are any.
    """
    words = re.escape(name)
    if name[-1:].isdigit():
        digits_only = name.replace(",", "")
        if digits_only.isdigit():
            first = len(digits_only) % 3
            groups = [
                digits_only[:first],
                *(digits_only[i : i + 3] for i in range(first, len(digits_only), 3)),
            ]
            words = ",?".join(filter(None, groups))
        alone = rf"(?!\s+(?!{nouns})[a-z]{{3,}})"
        return rf"(?<![\w.,])\$?{words}(?![.,]?\d|\s*[-+*/×÷^=%]){alone}"
    return rf"(?<!\w){words}"
