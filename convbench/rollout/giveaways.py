"""Whether words give a question's answer away.

They do where they state an answer ("the answer is B", "that makes marble the right choice"), advise
one ("you should pick marble"), confirm one ("you're right, it's marble"), or rule out all options
but one ("it can't be A, B or D"). A question states nothing, and neither does what is only
supposed or what the other one is said to think. What is read is these words alone: a bare "spot on"
may confirm anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from convbench.answers import claims
from convbench.answers.disguises import letters, readings
from convbench.answers.final import final_answer
from convbench.answers.options import Options, prepared
from convbench.answers.plain import lower, plain
from convbench.answers.statements import statements
from convbench.schema import Example

_VERB = r"(?:\s+(?:is|would\s+be|must\s+be)|['’]s)"
_RIGHT = r"(?:the\s+)?(?:correct|right|best)(?:\s+(?:answer|option|choice|one))?"
_NOT_SAID = re.compile(
    r"\b(?:not|never|whether|if|why|may|might|which)\b|n['’]t\b"
    r"|\byou(?:['’]re|\s+are)?\s+(?:think|say|said|saying|believe|chose|choose|mean)\b",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"[^.!?\n]+(?:\.(?=\S)[^.!?\n]+)*+[.!?]*")
_ASKED_BEHIND = re.compile(
    r",\s*(?:(?:but|and|so|now|then)\s+)?(?=(?:can|could|do|does|did|what|why|how|would|will|which"
    r"|where|when|who|don['’]t|isn['’]t|wouldn['’]t|aren['’]t|right|correct|yes|no|agreed)\b[^,.]*\?)"
)
"""Where a question follows a statement in its sentence: "it is marble, don't you think?"."""
_IN_YOUR_PLACE = re.compile(
    r"\b(?:if\s+i\s+were\s+(?:you|in\s+your\s+(?:place|shoes|position))|in\s+your\s+(?:place|shoes))\b,?",
    re.IGNORECASE,
)
_CONFIRMS = re.compile(
    r"\b(?:you(?:['’]re|\s+are|\s+were)\s+(?:\w+\s+)?(?:right|correct|spot\s+on|not\s+wrong)"
    r"|(?:that|this|it)(?:['’]s|\s+is)\s+(?:\w+\s+)?(?:right|correct|it)\b|spot[\s-]on|exactly|precisely"
    r"|bingo|well\s+(?:done|spotted|reasoned)|nailed\s+it|i\s+agree|i\s+(?:can|do)\s+confirm|indeed|good\s+(?:choice|pick|job|guess)"
    r"|(?:you(?:['’]ve|\s+have)?\s+)(?:got|found|hit)\s+(?:it|upon))\b|^\W*(?:yes|yep|yeah|right|correct"
    r"|absolutely|perfect|true|great|excellent|quite\s+so)\b(?=\s*[,.!:;—–-])",
    re.IGNORECASE,
)
_CONFIRMS_ANSWER = re.compile(
    r"\byour\s+(?:\w+\s+)?(?:answer|choice|guess|pick|option)\s+(?:of\s+[^.!?]{1,60}?\s+)?(?:is|was|looks)\s+"
    r"(?:\w+\s+)?(?:right|correct|spot\s+on|perfect)\b"
    r"|\b(?:that|this|it)(?:['’]s|\s+is)\s+(?:\w+\s+)?the\s+(?:right|correct)\s+(?:answer|option|choice|one|\w+,)"
    r"|\byou(?:['’]ve|\s+have)?\s+(?:already\s+)?(?:got|found|picked|chosen|chose|named|given|selected)\s+the\s+"
    r"(?:right|correct)\b|\b(?:stick|stay)\s+with\s+your\s+(?:answer|choice)\b"
    r"|\b(?:sure|confident)\s+of\s+your\s+(?:answer|choice)\b",
    re.IGNORECASE,
)
_ADVISES = re.compile(
    r"\b(?:choose|pick|select|go\s+(?:ahead\s+)?(?:with|for)|put(?:\s+down)?|write(?:\s+down)?|mark|answer(?:\s+with)?"
    r"|circle|tick|opt\s+for|settle\s+(?:on|for)|say|enter|submit|note\s+down|vote\s+for|bet\s+on|choosing|picking"
    r"|selecting|going\s+(?:with|for)|lean\s+towards?|commit\s+to|try)\s+(?:your\s+\w+\s+(?:on|for)\s+)?",
    re.IGNORECASE,
)
_OF_OTHERS = re.compile(
    r"\b(?:they|people|many|some|students?|others|he|she|most|you\s+(?:might|may|could|did)|when|to\s+see\s+why"
    r"|makes?\s+you|led\s+you\s+to|why|not|never|n['’]t|before\s+you)\s+(?:\w+\s+){0,2}$",
    re.IGNORECASE,
)
_REMAINS = re.compile(r"\s(?:remains?|is\s+left|survives?|fits?|works?|will\s+do)\b", re.IGNORECASE)
_LOOKED_FOR = re.compile(
    r"\b(?:(?:the\s+one|what)\s+(?:you|we|they)\s+(?:want|need|(?:are|['’]re)\s+(?:looking|after))"
    r"(?:\s+for)?\s+is|leaves\s+(?:you\s+|us\s+)?(?:with\s+)?(?:only\s+)?)\s+",
    re.IGNORECASE,
)
_RULES_OUT = re.compile(
    r"\b(?:not|never|cannot|neither|nor|no|wrong|incorrect|false|impossible|out|off|away|aside|drop"
    r"|eliminat\w+|exclud\w+|discard\w*|dismiss\w*|reject\w*|ignore|forget|fails?)\b|n['’]t\b",
    re.IGNORECASE,
)
_LETTER = re.compile(
    r"(?<![\w'’])(?:[B-HJ-Z](?![\w'’])|A(?=\s*(?:[,.;:)!?]|$|(?:is|isn['’]t|can|cannot|can['’]t|and|or|nor"
    r"|are|does|doesn['’]t|has|was|fails?)\b)))|(?<=[Oo]ption )A\b|(?<=[Cc]hoice )A\b"
)
_RUN_ON = re.compile(r"(the)?(?:correct)?(answer|option|choice)(is)(?=\w)", re.IGNORECASE)
"""Words that run together where letters were picked out of a text."""
_MAY_SAY = re.compile(r"answer|option|choice|correct|right|best|boxed", re.IGNORECASE)
"""No text without one of these gives an answer away (`leaks`)."""
LONG = 6
"""Letters of a gold option's text that are told apart from chance in a disguise."""


def leaks(text: str, example: Example) -> bool:
    """Return whether these words give the answer away."""
    said = _IN_YOUR_PLACE.sub("", plain(text))
    options = prepared(example.options)
    clauses = [clause for clause in _clauses(said) if not clause.rstrip(" \"')").endswith("?")]
    if any(_states(clause, example, options) for clause in clauses if not _NOT_SAID.search(clause)):
        return True
    gold = example.answer
    if gold not in example.letters:
        return False
    return (
        _confirms(clauses, gold, options)
        or any(_advises(clause, gold, options) for clause in clauses)
        or any(_leaves_it(clause, gold, options) for clause in clauses)
        or _leaves_one(clauses, gold, options)
    )


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


def _states(clause: str, example: Example, options: Options) -> bool:
    """Whether a clause says which option is the answer."""
    if final_answer(clause, example.letters, strict=True) is not None:
        return True
    asserted = statements(clause, options, strict=False)
    if any(one.letter and (one.firm or not one.by_text) for one in asserted):
        return True
    gold = next((c for c in example.choices if c.label == example.answer), None)
    if gold is None:
        return False
    named = re.compile(
        rf"\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s+\W?{gold.label}\b\W{{0,2}}{_VERB}\s+{_RIGHT}\b"
        rf"|^\W*{gold.label}\b[).]?{_VERB}\s+{_RIGHT}\b"
    )
    said = re.compile(
        rf"\banswer{_VERB}:?\s+(?:\w+\s+){{0,3}}?\W?{re.escape(gold.text.rstrip('.'))}(?!\w)",
        re.IGNORECASE,
    )
    return bool(named.search(clause) or said.search(clause))


def _named(clause: str, options: Options) -> set[str]:
    """Return the options that a clause names, by letter or by text."""
    found = {match[0] for match in _LETTER.finditer(clause) if match[0] in options.letters}
    return found | options.named_in(clause)


def _confirms(clauses: list[str], gold: str, options: Options) -> bool:
    """Whether a clause says "you are right" and it or the next one names the gold option alone."""
    for i, clause in enumerate(clauses):
        if _CONFIRMS_ANSWER.search(clause) and not claims.denies(lower(clause)):
            return True
        if not _CONFIRMS.search(clause) or claims.denies(lower(clause)):
            continue
        if any(_named(one, options) == {gold} for one in clauses[i : i + 2]):
            return True
    return False


def _advises(clause: str, gold: str, options: Options) -> bool:
    """Whether a clause tells to answer with the gold option."""
    for verb in _ADVISES.finditer(clause):
        before = clause[: verb.start()]
        named = options.named_at(clause, verb.end())
        if named is None or named.letter != gold or _OF_OTHERS.search(before):
            continue
        if claims.asserted(clause, verb.start(), named.end):
            return True
    return False


def _leaves_it(clause: str, gold: str, options: Options) -> bool:
    """Whether a clause says "only marble remains" or "the one you want is marble"."""
    for words in _LOOKED_FOR.finditer(clause):
        named = options.named_at(clause, words.end())
        if named and named.letter == gold and claims.asserted(clause, words.start(), named.end):
            return True
    for words in _REMAINS.finditer(clause):
        found = options.named_before(clause, words.start())
        if found and found.letter == gold and lower(clause[: found.end]).rstrip().endswith("only"):
            return True
    return False


def _leaves_one(clauses: list[str], gold: str, options: Options) -> bool:
    """Whether all options but the gold one are ruled out."""
    gone: set[str] = set()
    for clause in clauses:
        named = _named(clause, options)
        if gold not in named and _RULES_OUT.search(clause):
            gone |= named
    return gone == set(options.letters) - {gold} and len(gone) > 1


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
