"""Detect what a teacher gives away by affirming or denying what the student proposed.

A teacher's words affirm a proposal by an assent, by praise of the answer, by the advice to write it
down, by going on to the next question and by being content without asking more (`replies`). They
deny it by a refusal, or by naming an option and ruling it out. The answer is given away if the gold
option, proposed alone, is affirmed, and if all others are denied: over the conversation, or among
those that the student had narrowed the choice to.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from convbench.answers.final import final_answer
from convbench.answers.tags import without_thinking
from convbench.rollout import replies
from convbench.rollout.giveaways import MOST_CHARACTERS, is_question, shares_words
from convbench.rollout.option_names import SIGN, labels_in, sign_options
from convbench.rollout.proposals import (
    ASKS_MORE,
    Answering,
    proposed_options,
    turn_sentences,
    what_yes_answers,
)
from convbench.schema import Example


class DialogueState(NamedTuple):
    """What was proposed and denied in a conversation so far."""

    options: tuple[str, ...] = ()
    """The student's last proposals, in order."""
    opposed: tuple[str, ...] = ()
    """Options that the student rejects or asks to reject."""
    answering: Answering = "other"
    """What a yes or no of the teacher's would answer: whether the proposal is right, or wrong
    (`doubt`), a statement with its reasons, or something else."""
    asked_about: tuple[str, ...] = ()
    """Options that the student named last without proposing them."""
    offered: tuple[str, ...] = ()
    """The option of which the teacher asked whether the student means it."""
    denied: frozenset[str] = frozenset()
    """Options that the teacher has denied."""
    unlikely: frozenset[str] = frozenset()
    """Options of which the teacher conceded something before speaking against them, or spoke
    without a question, after which the student proposed another."""
    replied: bool = False
    """Whether the teacher's last turn spoke of the proposal and asked nothing."""
    gives_away: bool = False
    """Whether the teacher's last turn gave the answer away by what it affirms or denies."""


_SWITCHES = re.compile(
    r"\b(?:switch\w*|chang\w+|actually|wait|second thoughts?|revis\w+|instead)\b", re.IGNORECASE
)
_EARLIER = re.compile(
    r"\bthe (?P<pair>former|latter)\b(?= (?:is|was|fits|can|does|looks|works|has|would|one|it)\b"
    r"|\W*$|[.,;!?])"
    r"|\b(?:the|your) (?P<nth>first|second|last)(?: one\b| (?:guess|idea|thought|suggestion|pick"
    r"|candidate|choice|name)\b(?= (?:is|was|can|isn't)\b)|(?= ?(?:[.,;!?—–]|$))"
    r"|(?= of (?:the|your|those|these) (?:2|two)\b))(?: of (?:the|your|those|these) (?:2|two|pair)"
    r"| (?:that )?you (?:named|said|mentioned|gave|listed|wrote|proposed|suggested))?"
    r"|\b(?:the (?:one|1)(?: that)?|what) you (?:had|put|took|picked|chose|named|said|mentioned"
    r"|gave|listed|wrote|proposed|suggested) (?P<when>first|last)\b"
    r"|\b(?P<verb>follow|trust|take|keep|with) your (?P<thought>first|second|last) (?:thought|idea"
    r"|guess|choice|pick|instinct)\b",
    re.IGNORECASE,
)
"""An option by its position among the student's proposals."""
_BESIDE = re.compile(
    r"\b(?:the )?(?:one|option|line|letter|row)(?: that| which)?(?: (?:is|comes|stands|sits))?"
    r"(?: (?:right|just|directly))? (?:(?P<ahead>above|before)|after|below|beneath|under)"
    r" (?:it|that|this|yours|that one|your (?:pick|choice|guess|answer|one))\b",
    re.IGNORECASE,
)
"""An option by its position next to the proposed one."""


def after_student(talk: DialogueState, text: str, example: Example) -> DialogueState:
    """Return the state of the conversation after a student's turn; unchanged if the question's
    answer is not an option's letter.

    Only the first 20,000 characters are read, without thinking. If the turn proposes and opposes
    nothing, the earlier proposals stay.
    """
    if example.answer not in example.letters:
        return talk
    sentences = turn_sentences(without_thinking(text[:MOST_CHARACTERS]), example)
    read = [sign_options(sentence, example) for sentence in sentences]
    options: list[str] = []
    opposed: list[str] = []
    last = False
    for words in read:
        pro, contra = proposed_options(words, example)
        if pro and _SWITCHES.search(words):
            options, pro = [], pro[-1:]
        options, opposed = [*options, *pro], [*opposed, *contra]
        last = bool(pro or contra) if re.search(rf"\w|{SIGN}", words) else last
    options = list(dict.fromkeys(option for option in options if option not in opposed))
    if not options and talk.offered and sentences and replies.ASSENT.search(sentences[0]):
        options, last = list(talk.offered), len(sentences) == 1
    if not options or len(options) > 1:
        chosen = final_answer(text[:MOST_CHARACTERS], example.options, strict=bool(options))
        options = [chosen] if chosen else options
    answering = what_yes_answers(sentences[-1] if sentences else "", last, bool(options or opposed))
    named = dict.fromkeys(label for words in read for label in labels_in(words, example))
    asked_about = tuple(label for label in named if label not in (*options, *opposed))
    if not options and not opposed:
        return talk._replace(
            answering=answering, asked_about=asked_about, offered=(), gives_away=False
        )
    dropped = set(talk.options) - set(options) if talk.replied and options else set()
    return DialogueState(
        tuple(options),
        tuple(dict.fromkeys(opposed)),
        answering,
        asked_about,
        denied=talk.denied,
        unlikely=talk.unlikely | (dropped - {example.answer}),
    )


def after_teacher(talk: DialogueState, text: str, example: Example) -> DialogueState:
    """Return the state of the conversation after a teacher's turn, with `gives_away` for this turn.

    It is unchanged if the question's answer is not an option's letter. Only the first 20,000
    characters are read.
    """
    gold = example.answer
    if gold is None or gold not in example.letters:
        return talk
    sentences = turn_sentences(resolve_references(talk, text[:MOST_CHARACTERS], example), example)
    read = [sign_options(sentence, example) for sentence in sentences]
    refuses = any(_refuses_proposal(talk, read, i) for i in range(len(read)))
    affirms = not refuses and _affirms_any(talk, read, example)
    if talk.answering == "doubt":
        refuses, affirms = affirms, refuses
    against = _denied_options(talk, read, refuses, affirms, example) - {gold}
    conceded = _conceded_options(talk, read) if gold not in talk.options else set()
    denied = talk.denied | against
    others = set(example.letters) - {gold}
    narrowed = set(talk.options) - {gold} if gold in talk.options else set()
    gives_away = (
        (affirms and talk.options == (gold,))
        or (bool(against - talk.denied or conceded) and denied | talk.unlikely | conceded == others)
        or (bool(narrowed & against) and narrowed <= denied)
    )
    questions = [words for words in read if is_question(words)]
    offered = [proposed_options(words, example)[0] for words in questions]
    return talk._replace(
        denied=denied,
        unlikely=talk.unlikely | conceded,
        offered=tuple(offered[-1]) if offered and len(offered[-1]) == 1 else (),
        replied=bool(read) and not questions,
        gives_away=gives_away,
    )


def resolve_references(talk: DialogueState, text: str, example: Example) -> str:
    """Return a teacher's text with references to the student's proposals replaced by `option
    LABEL`.

    With several proposals, references by their order are replaced ("your first guess", and "the
    former" and "the latter" if there are two). With one, references to its neighbours are ("the one
    below yours"), if there is such an option. All else is unchanged.
    """
    letters = list(example.letters)

    def by_order(match: re.Match[str]) -> str:
        order = next(filter(None, match.group("pair", "nth", "when", "thought"))).lower()
        at = {"first": 0, "former": 0, "second": 1}.get(order, -1)
        of_more = match["pair"] and len(talk.options) > 2
        verb = f"{match['verb']} " if match["verb"] else ""
        return match[0] if of_more else f"{verb}option {talk.options[at]}"

    def by_neighbour(match: re.Match[str]) -> str:
        at = letters.index(talk.options[0]) + (-1 if match["ahead"] else 1)
        return f"option {letters[at]}" if 0 <= at < len(letters) else match[0]

    if len(talk.options) > 1:
        return _EARLIER.sub(by_order, text)
    return _BESIDE.sub(by_neighbour, text) if len(talk.options) == 1 else text


def _affirms_any(talk: DialogueState, read: list[str], example: Example) -> bool:
    """Return whether a teacher's turn affirms what was proposed."""
    opening = _opening_length(read)
    affirms = any(_affirms_proposal(talk, read, i, opening, example) for i in range(len(read)))
    return affirms or _is_content(talk, read)


def _denied_options(
    talk: DialogueState, read: list[str], refuses: bool, affirms: bool, example: Example
) -> set[str]:
    """Return the options that a teacher's turn denies: those that it rules out by name, and those
    that it refuses or agrees to rule out."""
    denied = _ruled_out(read, refuses, example)
    if refuses and (example.answer not in talk.options or len(talk.options) == 1):
        denied |= set(talk.options)
    agrees = affirms or refuses or (bool(read) and replies.ASSENT.search(read[0]) is not None)
    if agrees and not talk.options:
        denied |= set(talk.opposed)
    return denied


def _conceded_options(talk: DialogueState, read: list[str]) -> set[str]:
    """Return the proposed options if a teacher concedes something, speaks against them and asks
    nothing."""
    if talk.answering == "other" or any(map(is_question, read)):
        return set()
    return set(talk.options) if any(map(replies.CONCEDES.search, read)) else set()


def _refuses_proposal(talk: DialogueState, read: list[str], i: int) -> bool:
    """Return whether a teacher's sentence refuses what was proposed."""
    if talk.answering == "other" or is_question(read[i]) or _asked_before(read, i):
        return False
    return replies.REFUSAL.search(read[i]) is not None and not replies.NO_OBJECTION.search(read[i])


def _affirms_proposal(
    talk: DialogueState, read: list[str], i: int, opening: int, example: Example
) -> bool:
    """Return whether a teacher's sentence affirms what was proposed.

    In the turn's opening "it" is what was proposed.
    """
    words = read[i]
    if i < opening and _is_done_with(words):
        return True
    if is_question(words) or any(map(replies.BUT_NEXT.match, read[i + 1 : i + 2])):
        return False
    if replies.NO_OBJECTION.search(words):
        return talk.answering != "other"
    if _is_certain(words, replies.PRAISE):
        return True
    if talk.answering == "other":
        return False
    if _is_certain(words, replies.VERDICT) or _is_certain(words, replies.REWARD):
        return True
    return not _asked_before(read, i) and _assents_to_proposal(talk, read, i, example)


def _is_certain(words: str, kind: re.Pattern[str]) -> bool:
    """Return whether a sentence has words of a kind that its clause does not limit, and nothing
    behind it takes back."""
    match = kind.search(words)
    if match is None or replies.TURNS_BACK.search(words, match.end()):
        return False
    before = replies.TURNS.split(words[: match.start()])[-1]
    behind = replies.TURNS.split(words[match.end() :])[0]
    clause = before + match[0] + behind.split(",")[0]
    return not (replies.RESERVES.search(clause) or replies.NEGATIVE.search(clause))


def _is_content(talk: DialogueState, read: list[str]) -> bool:
    """Return whether a teacher is pleased with what was proposed and asks for nothing more."""
    return (
        talk.answering in ("proposal", "statement")
        and any(replies.PLEASED.search(words) or replies.APPROVING.search(words) for words in read)
        and not any(
            is_question(words)
            or replies.REQUESTS.search(words)
            or replies.WITHHOLDS.search(words)
            or replies.BUT_NEXT.search(words)
            or replies.RESERVES.search(words)
            for words in read
        )
    )


def _is_done_with(words: str) -> bool:
    """Return whether a sentence says to write down what was proposed, or to go on to the next
    question."""
    if replies.NEXT_QUESTION.search(words) and not replies.FOR_NOW.search(words):
        return True
    elsewhere = replies.WRITE_DOWN.sub(" ", words)
    return not (is_question(words) or elsewhere == words or replies.FOR_NOW.search(elsewhere))


def _assents_to_proposal(talk: DialogueState, read: list[str], i: int, example: Example) -> bool:
    """Return whether a sentence begins or ends with a yes to what was proposed."""
    assent = replies.ASSENT.search(read[i])
    rest = read[i][assent.end() :] if assent else ""
    if assent is None or replies.RESERVES.search(rest) or replies.REQUESTS.match(rest):
        return False
    if assent["pleased"]:
        return len(read) == 1 and not re.search(r"\w", rest)
    if assent["agrees"]:
        alone = len(read) == 1 or talk.answering != "statement"
        return alone and not re.search(r"\w", rest)
    direct = talk.answering in ("proposal", "doubt")
    return (
        direct
        or bool(replies.AGREES_FURTHER.match(rest))
        or (example.answer in labels_in(rest, example))
    )


def _asked_before(read: list[str], i: int) -> bool:
    """Return whether a sentence may answer the teacher's own question."""
    return i > 0 and is_question(read[i - 1]) and not ASKS_MORE.match(read[i - 1])


def _opening_length(read: list[str]) -> int:
    """Return the number of sentences up to the first that states something of its own."""
    states = (i for i, words in enumerate(read) if not is_question(words) and words.count(" ") > 6)
    return next(states, len(read)) + 1


def _ruled_out(read: list[str], refused: bool, example: Example) -> set[str]:
    """Return the options that a teacher's sentences name and rule out."""
    labels: set[str] = set()
    goes_on = refused
    for i, words in enumerate(read):
        if is_question(words):
            answer = read[i + 1] if i + 1 < len(read) else ""
            if replies.REFUSAL.search(answer) and example.answer not in labels_in(words, example):
                labels |= set(labels_in(words, example))
            continue
        here: set[str] = set()
        before: list[str] = []
        for part in replies.TURNS.split(words):
            before = labels_in(part, example) or before
            denies = replies.RULES_OUT.search(part) or (
                replies.NEGATIVE.search(part) and shares_words(part, example)
            )
            if denies and example.answer not in before:
                here |= set(before)
        if (
            goes_on
            and replies.ALSO.match(words)
            and example.answer not in labels_in(words, example)
        ):
            here |= set(labels_in(words, example))
        labels |= here
        goes_on = bool(here) or goes_on
    return labels
