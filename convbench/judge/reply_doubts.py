"""What a reply says against its own scores: another scale, another number in a score's place, that
they are not to count, or that they are somebody else's.

A sentence is held as its words. One that stands around all scores mostly is about them, one among
them mostly about the talk that is judged. In doubt it is evidence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from convbench.answers.numbers import NUMBER_WORDS
from convbench.judge.reply_words import WORDS, pattern

Limits = set[tuple[float, float]]
Floats = Collection[float] | None
SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][)\"'])\s+|\n\s*")


class Said(NamedTuple):
    """A sentence in lower case: numbers as digits, quotations left out."""

    tokens: list[str]
    words: set[str]
    text: str
    """Its tokens with a blank between."""
    raw: str
    """It as it was written."""


_TOKEN = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:'[a-z]+)?|[^\w\s]")
QUOTATION = re.compile(r'"[^"\n]{0,400}"')
_SPELLED = {word: str(n) for n, word in enumerate(NUMBER_WORDS)} | {"hundred": "100"}


def said_of(text: str) -> Said:
    tokens = _TOKEN.findall(QUOTATION.sub('"', text.lower()))
    if not _SPELLED.keys().isdisjoint(tokens):
        pairs, ends = zip(tokens, [*tokens[1:], ""], strict=True), {"to", "-", "–", "("}
        tokens = [_SPELLED.get(a, a) if a != "one" or b in ends else a for a, b in pairs]
    return Said(tokens, set(tokens), " ".join(tokens), text)


_N = r"\b\d+(?:\.\d+)?\b"
_MEANS = r" (?:[=:(]|is|means?|stands? for|for|denotes?|being|as) (?:(?:an?|the|very) )*"
_END = re.compile(rf"({_N}){_MEANS}(?:({pattern('good')})|{pattern('bad')})")
_SCALE = re.compile(
    r"(?<!- )\bscales?\b|\b(?:likert|legend|total :)|\d (?:- )?(?:point|star|level)\b"
    r"|\b(?:as|in|are) (?:\w+ )?(?:per cent|percent\w*|stars)\b"
    rf"|\ban? {_N}{_MEANS}{pattern('good')}"
    rf"|\b(?:highest|best|top|max\w*) (?:\S+ ){{0,2}}{pattern('scores')}"
)
"""What speaks of a scale."""
_RANGE = re.compile(
    rf"\bout of|{_N} /|/ {_N}|{_N} at most|\bbetween {_N}|{_N} (?:\([^()]*\) )?(?:-|–|to) {_N}"
)
_LOW, _HIGH = (
    r"\b(?:lower|low|small(?:er)?|less|fewer)\b",
    r"\b(?:higher|high|larger|bigger|more)\b",
)
_IS = rf"(?: {pattern('scores')})? (?:is|are|means?|indicates?|the|=) (?:an? |the )?"
_BETTER, _WORSE = r"(?:better|best|good|more)\b", r"(?:worse|worst|bad|poor|less)\b"
_TURNED = re.compile(
    rf"{_LOW}{_IS}{_BETTER}|{_HIGH}{_IS}{_WORSE}|\b(?:reversed|inverted) scale|\b(?:penalty|error)"
    rf" (?:points|scores)|{_LOW}(?! than) .{{0,30}}\bthe better|{_HIGH} .{{0,30}}\bthe worse"
)
_DIRECTION = re.compile(
    rf"(?:{_LOW}|{_HIGH}) {pattern('scores')} (?:is|are|means?)\b(?! (?:worse|bad|better|good))"
)


def other_scale(said: Said, limits: Limits, scores: Floats = None, *, surely: bool) -> bool:
    """Whether a sentence names a scale (`surely`: it does) that is none of these, or turned;
    around all `scores`, too, a number about them that is none of them."""
    text, ends, around = said.text, _END.findall(said.text), scores is not None
    if _TURNED.search(text) or (around and _DIRECTION.search(text)):
        return True
    low, high = {a for a, _ in limits}, {b for _, b in limits}
    if surely or names_scale(said) or (ends and around):
        every = map(float, re.findall(rf"{_N}(?! (?:/|out\b))", text))
        wrong = any(float(n) not in (high if good else low) for n, good in ends)
        share = 100.0 not in high and re.search(r"\bpercent|%|\bstars\b|\bper cent", text)
        if wrong or share or not low | high >= {*every}:
            return True
    if scores is None:
        return False
    about = not said.words.isdisjoint(WORDS["scores"])
    numbers = [said.tokens[i] for i in numbers_in(said.tokens, 0, 1000) if about]
    numbers += re.findall(rf"({_N}) = [a-z]", text)
    return not low | high | {*scores} >= {*map(float, numbers)}


def names_scale(said: Said) -> bool:
    """Whether a sentence speaks of a scale of scores."""
    scored = said.words & WORDS["scores"] and _RANGE.search(said.text)
    return bool(scored or _SCALE.search(said.text) or len(_END.findall(said.text)) > 1)


def numbers_in(tokens: Sequence[str], low: float, high: float) -> list[int]:
    """Return the places of the numbers that may be a score: in range, and neither a count of
    something, nor the number of a turn or an option, nor a part of a sum."""
    found, more = [], [*tokens, ".", "."]
    for i, token in enumerate(tokens):
        if token.replace(".", "", 1).isdigit() and low <= float(token) <= high:
            listed = more[i + 1] in ("or", "and", ",", "to", "-") and more[i + 2][0].isdigit()
            before, after = tokens[i - 1] if i else "", more[i + 3 if listed else i + 1]
            counted = (after.isalpha() and after not in WORDS["after"]) or after in "+*=×^%°$€<>"
            part = before in ("/", "of") and i > 1 and tokens[i - 2][0].isdigit()
            if not counted and not part and before not in WORDS["counted by"]:
                found.append(i)
    return found


_TAIL_SCALE = re.compile(
    r"\W*+(?:(?:stars?|points?|marks?)\W++)?of\W*+\d|\D{0,40}?\b(?:out of|max\w*|scale)\b\D{0,20}\d"
)


def goes_on(tail: str, limits: tuple[float, float]) -> bool:
    """Whether the sentence that a score stands in goes on to another one, or to its scale."""
    said = said_of(SENTENCE.split(tail, maxsplit=1)[0])
    scale = _TAIL_SCALE.match(said.text) or _END.search(said.text)
    if scale and other_scale(said, {limits}, surely=True):
        return True
    places = numbers_in(said.tokens, *limits)
    return WORDS["between"].issuperset(said.tokens[: places[0]] if places else "x") or any(
        said.tokens[i + 1 : i + 2] in (["for"], ["if"], ["("], [":"])
        or said.tokens[i - 1] == "be"
        or not WORDS["others"].isdisjoint(said.tokens[max(0, i - 2) : i])
        for i in places
    )


def is_afterthought(tokens: Sequence[str]) -> bool:
    """Whether a sentence begins as one that takes back what stands before it: "Wait", "Or"."""
    first, behind, *_ = [word for word in tokens[:4] if word not in ("(", "just", "–", "—")] + [
        "",
        "",
    ]
    goes_on = behind.isalpha() and behind not in WORDS["behind"]
    return first in WORDS["afterthought"] and not goes_on


def is_unreal(words: set[str]) -> bool:
    """Whether the words of a sentence say what a score would be if."""
    might = words & {"would", "could", "might", "may", "had"}
    given = words & {"if", "with", "had", "without", "were", "unless", "have"}
    now = words & {"hindsight", "reflection", "reconsidered", "again", "second"}
    return bool((might and given and not now) or words & {"almost", "nearly", "tempted"})


OWN = re.compile(
    rf"\b(?:my|our) (?:\w+ ){{0,2}}?{pattern('scores', 'evaluations')}"
    r"|\bi(?: would|'d| have| now)?"
    r" (?:rate|score|evaluate|judge|grade|assess|assign|give|award)d?\b"
)
_AGAINST = re.compile(pattern("against"))
_NEGATING = re.compile(pattern("negating") + "|n't\\b")
_FOREIGN = re.compile(pattern("against", "foreign", "speaking"))
_REFUSAL = re.compile(
    r"\b(?:i|we|me) (?:\w+ ){0,2}?(?:refuse|decline|refrain|abstain|withhold|disagree|reject"
    r"|retract|withdraw|disown|take back)|\brather not\b"
    r"|\bno (?:actual )?(?:evaluation|verdict|scor\w+|view)\b"
    r"|(?:\b(?:never|not|cannot)|n't) (?:saw|see|seen|read|have) (?:the|any|a)"
    r" (?:transcript|conversation|talk)\b"
    r"|\b(?:once|when|until|after) i (?:\w+ )?(?:see|get|have|receive)\b"
    r"|\bi(?:'m| am| was| have been) (?:\w+ )?(?:told|asked|instructed|forced|paid|drunk)\b"
    r"|\b(?:do not|don't) (?:count|use|trust|rely|take)\b"
    r"|\bnot an? (?:actual|real)|\b(?:would|might|could) look\b"
    r"|^(?:please )?(?:ignore|disregard|discard|forget|scrap|delete)\b|\bkidding\b"
)


_DOUBTED = WORDS["scores"] | WORDS["evaluations"] | {"lower", "low", "smaller", "less", "higher"}


def is_harmless(sentence: Said) -> bool:
    """Whether a sentence for a metric needs no other look: most have nothing that one is at."""
    bare = sentence.words.isdisjoint(_DOUBTED) and not re.search(r"[\d~]", sentence.text)
    return bare and not is_afterthought(sentence.tokens) and not refuses(sentence)


def is_others(said: Said) -> bool:
    """Whether a line that leads to scores introduces them as somebody else's, or as none: it has
    other words than an evaluation's, and not the judge's voice first."""
    foreign, own = _FOREIGN.search(said.text), OWN.search(said.text)
    if own:
        foreign = foreign or re.search(r"\b(?:if|had|were|unless)\b", said.text)
        return foreign is not None and foreign.start() < own.start()
    return not {word for word in said.words if word[0].isalpha()} <= WORDS["leading"]


def refuses(said: Said) -> bool:
    """Whether a sentence says that there is no evaluation."""
    return _REFUSAL.search(said.text) is not None


def withdraws(said: Said, *, around: bool) -> bool:
    """Whether a sentence says that the scores are not to count; one `around` them may mean them
    without a name."""
    text, words = said.text, said.words
    if words & {"average", "mean", "sum"}:
        return False
    told = words & WORDS["others"] and words & WORDS["speaking"] and not words & WORDS["voice"]
    these = words & {"these", "those", "my", "above", "all"} and words & WORDS["scores"]
    if not around and (told or not these):
        return refuses(said)
    against, negating = _AGAINST.search(text), _NEGATING.search(text)
    if not around:
        return refuses(said) or bool(against or negating)
    pointing = words & WORDS["pointing"]
    leads = WORDS["pronouns"] & {token.partition("'")[0] for token in said.tokens[:1]}
    about = pointing or words & WORDS["scores"] or (leads and words & WORDS["evaluations"])
    return bool(
        refuses(said)
        or (about and (against or negating))
        or (against and (words & (WORDS["pronouns"] | WORDS["voice"]) or not against.start()))
        or (pointing and _FOREIGN.search(text))
        or (leads and words & WORDS["others"])
    )
