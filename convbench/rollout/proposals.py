"""Detect what a student proposes in a sentence, and what a yes or no to the turn would answer.

Words propose an option if they say no more than that it may be the answer: "Is it marble?", "so C",
"I'm between A and B", "Is marble metamorphic?" for the question which rock is. An option mentioned
in other words is not proposed. A yes or no answers the student's last words: after a question about
something else it says nothing about the proposal.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from convbench.answers.normalize import normalize_text
from convbench.rollout.giveaways import (
    IN_YOUR_PLACE,
    is_question,
    split_sentences,
    topic_words,
)
from convbench.rollout.option_names import (
    SIGN,
    labels_in,
    number_words,
    radio_letters,
    sign_options,
)
from convbench.schema import Example

Answering = Literal["proposal", "statement", "doubt", "other"]


_CLOSE_WORDS = frozenset(
    re.findall(
        r"\S+",
        "it it's its that that's this is isn't was wasn't be been are aren't were would "
        "wouldn't could couldn't can can't cannot may might must should shouldn't shall will "
        "won't have haven't has had to do don't does doesn't did i i'd i'll i'm i've we we'd "
        "we're let's you they he she he's she's me my mine our your think thinking thought "
        "guess guessing say saying said believe feel feeling reckon suppose suspect bet mean "
        "choose choosing chose chosen pick picking picked select go going went with for of on "
        "in by take taking put stick sticking stay lean leaning towards toward between among "
        "torn stuck narrowed narrow down left keep tend tempted decide decided settle settled "
        "vote opt final answer answer's option options choice choices letter candidate "
        "candidates solution correct right true one ones maybe perhaps probably possibly surely "
        "definitely certainly clearly likely obviously presumably really just only still now "
        "then so well oh ah um uh er erm ehm hm hmm ok okay yes yeah no not never neither nor "
        "the a an either all both or and sure quite almost pretty also too again instead rather "
        "first second last at these those them two any some chance what how about why if "
        "whether whichever which please there other another sir miss teacher agree confirm get "
        "got make sense sound work fit track there's seems appears stands remains wrong "
        "incorrect false out rule ruled ruling exclude excluded excluding eliminate eliminated "
        "eliminating cross crossed drop dropped most best more than switch switched change "
        "changed actually hand mind gut initially changing switching 2 very write wrote written "
        "mark tick enter submit because due reason cause explanation word term thing named name "
        "key ended up came comes arrived landed obtained makes gives equals circled circle ticked "
        "marked "
        "entered fine",
    )
)
"""Words that propose an option or carry no meaning; with other words, an option is only spoken
about."""
_UNSURE = re.compile(
    r"\b(?:not (?:\w+ )?(?:sure|certain)|unsure|don't know|do not know|no (?:idea|clue))\b"
    r"(?: (?:if|whether|that|but|about))?|\bi(?: would|'d) like\b|\bwhy not\b|\bnot only\b"
    r"|\b(?:it|that|this) (?:looks?|sounds?|seems?|feels?) like\b",
    re.IGNORECASE,
)
"""Words of doubt that deny nothing."""
_REASON = re.compile(
    r"(?:\b(?:because|cause|cos|coz|since|due to|given|considering)\b|, (?:like|as"
    r"|with)\b)[^,;:?]*",
    re.IGNORECASE,
)
_CLAUSES = re.compile(r"[;:()—–?!.\"]|\b(?:but|so|then)\b", re.IGNORECASE)
_WORDS = re.compile(r"[^\W_]+(?:'[^\W\d_]+)?")
_DENYING = re.compile(
    r"\b(?:not|never|neither|nor|wrong|incorrect|false|out|exclud\w+|eliminat\w+|rul\w+)\b|n't\b"
    r"|^\W*no (?=\W*\w*$)",
    re.IGNORECASE,
)
_INVERTED = re.compile(
    r"^\W*(?:\w+\W+){0,2}(?:is|was|would|could|should|can|are|must|do)n't\b", re.IGNORECASE
)
"""How a question begins that denies nothing: "Isn't it marble?"."""
_ONLY_JOINS = re.compile(rf"(?:\W|{SIGN}|\b(?:and|or|nor)\b)*", re.IGNORECASE)
"""A part of a list of options; the part before it says what they are."""
_DOUBTS = re.compile(
    r"\b(?:should|shall|must|need|do|would|ought)\b[^?]{0,12}?\b(?:change|switch|reconsider|revise"
    r"|rethink|drop|doubt)\b|\bam i (?:\w+ )?(?:wrong|mistaken|off)\b"
    r"|\b(?:is|was) (?:that|it|this|my \w+) (?:wrong|incorrect|false|off)\b",
    re.IGNORECASE,
)
ASKS_MORE = re.compile(
    r"^\W*(?:(?:and|so|but|then) )?(?:why|how|where|when|who|which"
    r"|what(?! (?:do|would) you (?:think|say)))\b",
    re.IGNORECASE,
)
_ASKS_ABOUT = re.compile(
    r"^\W*(?:(?:and|so|but) )?(?:why(?! not)|how(?! about)|what(?! about| if)|where|when|who)\b",
    re.IGNORECASE,
)
"""Beginnings of questions that ask something else about an option than whether it is right."""
_CUT_SHORT = re.compile(
    r"\b([^\W\d_]{3,})(?:-| ?\.{2,3} ?| )?"
    r"(?:something|thing(?:y|ummy|amajig)?|what(?:ever|sit|not)|sth|or other)\b",
    re.IGNORECASE,
)
"""A word of which the speaker knows only the beginning: "tropo-something"."""


def turn_sentences(text: str, example: Example) -> list[str]:
    """Return the sentences of a text in plain form, with numbers as digits, letters for radio
    alphabet names, and cut words ("tropo-something") replaced by the one option that they fit."""
    text = _CUT_SHORT.sub(lambda match: _completed_word(match, example), text)
    return list(
        split_sentences(IN_YOUR_PLACE.sub("", radio_letters(number_words(normalize_text(text)))))
    )


def _completed_word(match: re.Match[str], example: Example) -> str:
    """Return the option that alone has a word with this beginning, or the text as it was."""
    begins = match[1].lower()
    fit = [
        choice.text
        for choice in example.choices
        if any(word.startswith(begins) for word in re.findall(r"\w+", choice.text.lower()))
    ]
    return fit[0] if len(fit) == 1 else match[0]


def proposed_options(words: str, example: Example) -> tuple[list[str], list[str]]:
    """Return (labels that a sentence proposes, labels that it opposes), in order; a label may be
    listed twice.

    `words` is a sentence from `sign_options`. Both are empty for a question that asks something
    else about an option than whether it is right.
    """
    if _ASKS_ABOUT.match(words):
        return [], []
    shorter = _REASON.sub(" ", words)
    words = shorter if re.search(SIGN, shorter) or not re.search(SIGN, words) else words
    inverted = is_question(words) and _INVERTED.search(words)
    proposed: tuple[list[str], list[str]] = ([], [])
    for clause in _CLAUSES.split(_UNSURE.sub(" ", words)):
        parts = [
            part if re.search(SIGN, part) else _sign_of_part(part, example)
            for part in clause.split(",")
        ]
        parts = [part for part in parts if re.search(SIGN, part)]
        if all(_only_proposes(part, example) for part in parts):
            opposes = False
            for part in parts:
                denies = not inverted and _DENYING.search(part) is not None
                opposes = denies or (opposes and _ONLY_JOINS.fullmatch(part) is not None)
                proposed[opposes].extend(labels_in(part, example))
    return proposed


def _sign_of_part(part: str, example: Example) -> str:
    """Return a part of a sentence with the words that belong to one option only ("the clouds?")
    replaced by its sign; an empty text if there are none, or words of several options."""
    own = _own_words(tuple((c.label, c.text) for c in example.choices), example.question)
    words = _WORDS.findall(part.lower())
    named = [word for word in words if word not in _CLOSE_WORDS]
    if not named and len(words) < 3:
        named = words[-1:]
    labels = {own.get(_word_stem(word), "") for word in named}
    label = labels.pop() if len(labels) == 1 else ""
    rest = " ".join(word for word in words if word not in named)
    return f"{rest} {sign_options(f'option {label}', example)}" if label else ""


@lru_cache(maxsize=512)
def _own_words(choices: tuple[tuple[str, str], ...], question: str) -> dict[str, str]:
    """Return the stems of words that occur in one option only and not in the question, with its
    label."""
    words = {label: set(map(_word_stem, _WORDS.findall(text.lower()))) for label, text in choices}
    asked_of = set(map(_word_stem, _WORDS.findall(question.lower())))
    return {
        word: label
        for label, own in words.items()
        for word in own - asked_of
        if word.isalpha()
        and len(word) > 2
        and sum(word in others for others in words.values()) == 1
    }


def _word_stem(word: str) -> str:
    return word[:6] if len(word) > 6 else word


def _only_proposes(part: str, example: Example) -> bool:
    """Return whether a part of a sentence says no more of its options than that they may be the
    answer."""
    others = {word for word in _WORDS.findall(part.lower()) if word not in _CLOSE_WORDS}
    if not others:
        return True
    topic, kind = topic_words(example)
    if not {word[:4] for word in others} <= {*topic, *kind}:
        return False
    shared = [word for word in topic if word in {other[:4] for other in others}]
    return 2 * len(shared) > len(topic) or (
        2 * len(shared) == len(topic) > 0 and shared[0] == topic[0]
    )


def what_yes_answers(last: str, proposes: bool, any_proposed: bool) -> Answering:
    """Return what a yes or no to a student's turn would answer, judged by its last sentence,
    `last`.

    `doubt`: whether to change the answer. `proposal`: whether the proposed option is right.
    `statement`: a statement in a turn that proposes or opposes an option (`any_proposed`). `other`:
    anything else. `proposes` says that the last sentence proposes or opposes an option.
    """
    asks = is_question(last)
    if _DOUBTS.search(last):
        return "doubt"
    if asks and proposes:
        return "proposal"
    about_it = asks and not ASKS_MORE.match(last)
    if about_it and all(word in _CLOSE_WORDS for word in _WORDS.findall(last.lower())):
        return "proposal"
    return "other" if asks or not any_proposed else "statement"
