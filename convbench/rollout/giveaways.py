"""Whether words give a question's answer away.

They do where they state an answer ("the answer is B", "that makes marble the right choice"), advise
one ("you should pick marble"), confirm one ("you're right, it's marble", "that's the one!"), or
rule out all options but one or, pointing to it, say what the others are. A question
states nothing, and neither does what is only supposed or what the other one is said to think. What
is read is these words alone: a bare "yes" or "correct" confirms a fact as often as an answer, and
is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.answers import claims
from convbench.answers.disguises import letters, readings
from convbench.answers.options import Options, prepared
from convbench.answers.plain import plain
from convbench.answers.statements import statements
from convbench.rollout import giveaway_words as words
from convbench.rollout.giveaway_words import marked
from convbench.schema import Example

_NOT_SAID = re.compile(
    r"\b(?:not|never|whether|if|why|may|might|which)\b|n['’]t\b"
    r"|\byou(?:['’]re|\s+are)?\s+(?:think|say|said|saying|believe|chose|choose|mean)\b",
    re.IGNORECASE,
)
_YOU_SAY = re.compile(
    r"\byou(?:['’]re|\s+are)?\s+(?:think|say|said|saying|believe|chose|mean|propose|claim|reckon)\b"
    r"[^,;:]*$",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"[^.!?\n]+(?:\.(?=\S)[^.!?\n]+)*+[.!?]*")
_ASKED_BEHIND = re.compile(
    r",\s*(?:(?:but|and|so|now|then)\s+)?(?=(?:can|could|do|does|did|what|why|how|would|will|which"
    r"|where|when|who|don['’]t|isn['’]t|wouldn['’]t|aren['’]t|right|correct|yes|no|agreed)\b[^,.]*\?)"
)
"""Where a question follows a statement in its sentence: "it is marble, don't you think?"."""
_IN_YOUR_PLACE = re.compile(
    r"\b(?:if\s+i\s+were\s+(?:you|in\s+your\s+(?:place|shoes|position))"
    r"|if\s+it\s+were\s+(?:me|mine|my\s+\w+|up\s+to\s+me)"
    r"|in\s+your\s+(?:place|shoes))\b,?",
    re.IGNORECASE,
)
_CONFIRMS = re.compile(
    r"\b(?:you(?:['’]re|\s+are|\s+were)\s+(?:\w+\s+)?(?:right|correct|spot\s+on|not\s+wrong)"
    r"|(?:that|this|it)(?:['’]s|\s+is)\s+(?:\w+\s+)?(?:right|correct|it)\b|spot[\s-]on|exactly|precisely"
    r"|well\s+(?:done|reasoned)|i\s+agree|i\s+(?:can|do)\s+confirm|indeed"
    r"|you(?:['’]ve|\s+have)?\s+(?:got\s+it|found\s+it|hit\s+upon))\b|^\W*(?:yes|yep|yeah|right|correct"
    r"|absolutely|perfect|true|great|excellent|quite\s+so)\b(?=\s*[,.!:;—–-])",
    re.IGNORECASE,
)
_OF_OTHERS = re.compile(
    r"\b(?:they|people|many|some|students?|others|he|she|most|you\s+(?:might|may|could|did)|when|to\s+see\s+why"
    r"|makes?\s+you|led\s+you\s+to|why|not|never|n['’]t|before\s+you)\s+(?:\w+\s+){0,2}$",
    re.IGNORECASE,
)
_RULES_OUT = re.compile(
    r"\b(?:not|never|cannot|neither|nor|no|wrong|incorrect|false|impossible|out|off|away|aside|drop"
    r"|eliminat\w+|exclud\w+|discard\w*|dismiss\w*|reject\w*|ignore|forget|fails?)\b|n['’]t\b",
    re.IGNORECASE,
)
_LOOKS = re.compile(
    r"^\W*(?:now |then |so |please |just |first )?(?:look|compare|consider|think|read|study|examine"
    r"|remember|let['’]s|let us|describe|tell|take|imagine|try|recall|we have|there (?:are|is)"
    r"|here (?:are|is)|you)\b",
    re.IGNORECASE,
)
"""How a clause begins that names options without saying what they are."""
_ONE_IS_LEFT = re.compile(
    r"\b(?:left|leaves?|remain\w*|only (?:one|\w+ one)|one more|just one|last one|(?:the )?fourth"
    r"|the other one|still standing|narrows?)\b",
    re.IGNORECASE,
)
"""Words that send the other one to the option that was not spoken of."""
_TOO = re.compile(r"\btoo \w+", re.IGNORECASE)
_NO = re.compile(r"^\W*(?:no|nope|nah|not|wrong|out|gone|never)\b", re.IGNORECASE)
_RUN_ON = re.compile(r"(the)?(?:correct)?(answer|option|choice)(is)(?=\w)", re.IGNORECASE)
"""Words that run together where letters were picked out of a text."""
_MAY_SAY = re.compile(r"answer|option|choice|correct|right|best|boxed", re.IGNORECASE)
"""Only a disguised text with one of these is read for an answer."""
LONG = 6
"""Letters of a gold option's text that are told apart from chance in a disguise."""


def leaks(text: str, example: Example) -> bool:
    """Return whether these words give the answer away."""
    said = _IN_YOUR_PLACE.sub("", plain(text))
    options = prepared(example.options)
    clauses = list(_clauses(said))
    told = [clause for clause in clauses if not _is_question(clause)]
    if any(_states(clause, options) for clause in told if not _NOT_SAID.search(clause)):
        return True
    if example.answer not in example.letters:
        return False
    read = [marked(clause, example)[0] for clause in told]
    return (
        _confirms(clauses, read)
        or any(_names(clause, example) or _advises(clause) for clause in read)
        or _leaves_one(clauses, example)
    )


def _is_question(clause: str) -> bool:
    return clause.rstrip(" \"')").endswith("?")


def _clauses(text: str) -> Iterator[str]:
    """Yield sentences, a statement apart from the question behind it."""
    for match in _SENTENCES.finditer(text):
        sentence = match[0]
        behind = _ASKED_BEHIND.search(sentence) if sentence.rstrip().endswith("?") else None
        if behind:
            yield sentence[: behind.start()] + "."
            yield sentence[behind.end() :]
        else:
            yield sentence


def _states(clause: str, options: Options) -> bool:
    """Whether a clause says which option is the answer."""
    asserted = statements(clause, options, strict=False)
    return any(one.letter and (one.firm or not one.by_text) for one in asserted)


def _confirms(clauses: list[str], read: list[str]) -> bool:
    """Whether the turn confirms the other one's answer, or the gold option that stands beside."""
    opening = " ".join(" ".join(clauses[:2]).split())
    if words.OPENS_BY_CONFIRMING.match(opening) and not words.ONLY_ON_THE_WAY.search(opening):
        return True
    for i, clause in enumerate(read):
        if claims.denies(clause) and not words.YOURS_IS_RIGHT.search(clause):
            continue
        if (yours := words.YOURS_IS_RIGHT.search(clause)) and _asserted(clause, yours):
            return True
        if _CONFIRMS.search(clause) or words.OPENS_BY_CONFIRMING.match(clause):
            beside = [one for one in read[i : i + 2] if words.OTHER not in one]
            if any(words.GOLD_ALONE.search(one) for one in beside):
                return True
    return False


def _names(clause: str, example: Example) -> bool:
    """Whether a clause calls the gold option right, or what the question asks for."""
    if any(_asserted(clause, match) for match in words.NAMES.finditer(clause)):
        return True
    asked = set(re.findall(r"\w{3,}", example.question.lower()))
    return any(
        (match["after"] or match["before"]).lower() in asked and _asserted(clause, match)
        for match in words.IDENTIFIES.finditer(clause)
    )


def _advises(clause: str) -> bool:
    """Whether a clause tells to answer with the gold option."""
    return any(
        _asserted(clause, match) and not _OF_OTHERS.search(clause[: match.start()] + " ")
        for match in words.ADVISES.finditer(clause)
    )


def _asserted(clause: str, match: re.Match[str]) -> bool:
    before = clause[: match.start()]
    return claims.asserted(clause, match.start(), match.end()) and not _YOU_SAY.search(before)


def _leaves_one(clauses: list[str], example: Example) -> bool:
    """Whether all options but the gold one are ruled out, or said to be something else."""
    gone: set[str] = set()
    pointed = any(map(_ONE_IS_LEFT.search, clauses))
    for i, clause in enumerate(clauses):
        read, named = marked(clause, example)
        if example.answer in named:
            return False
        asked_and_denied = _is_question(clause) and any(map(_NO.search, clauses[i + 1 : i + 2]))
        if asked_and_denied or (not _is_question(clause) and _says_what(clause, read, pointed)):
            gone |= named
    return gone == set(example.letters) - {example.answer} and len(gone) > 1


def _says_what(clause: str, read: str, pointed: bool) -> bool:
    """Whether a clause rules out the options that it names, or, where the turn points to the one
    that is left, says what they are."""
    if _RULES_OUT.search(clause) or _TOO.search(clause):
        return True
    return pointed and not _LOOKS.search(clause) and len(re.findall(r"\w{2,}", read)) > 1


def smuggles(text: str, example: Example) -> bool:
    """Return whether these words give the answer away in a disguise.

    There the gold option's text alone is enough, where it is long and not said openly too: nobody
    disguises an explanation.
    """
    gold = letters(example.options.get(example.answer or "", ""))
    named = len(gold) >= LONG and gold not in letters(text)
    if leaks(" ".join(text.split()), example):
        return True
    for kind, said in readings(text):
        if _MAY_SAY.search(said) and leaks(_RUN_ON.sub(r"\1 \2 \3 ", said), example):
            return True
        if named and kind in ("turned", "decoded") and _says(said, gold):
            return True
    return False


def _says(text: str, gold: str) -> bool:
    """Whether the words of an option stand in the text, as words."""
    return (
        re.search(r"(?<![^\W_])" + r"[\W_]*+".join(gold) + r"(?![^\W_])", text.lower()) is not None
    )
