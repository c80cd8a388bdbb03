"""Judge `rules`: six scores by rule. A heuristic, deterministic and offline, not a model.

It uses the gold letter and what can be counted (`Features`): whether the final answer is right,
which options the policy discusses, whether it accepts or rejects them and whether the gold letter
does too, whether the conclusion follows from that, words of reasoning, hedging, thinking tags as
the mode requires, turns cut short, repetition, length. It cannot tell whether an argument is true,
so it can be gamed; use it for demonstrations, smoke tests and ablations, never as the judge of a
result.

- accuracy: 10 for the right answer; 5 or 3 if none can be parsed (5 if an earlier turn settled on
the gold letter); 2 or 1 for a wrong one (2 likewise). - reasoning: a base, plus coverage, verdicts
that agree with the gold letter, a conclusion that follows, words of reason; less for a change of
mind at the end, cut turns and repetition. - comprehensiveness: shares of the options discussed and
decided. - pedagogical: a right answer, verdicts that agree, words of reasoning, tags as required, a
reasonable length; less for repetition. - confidence: high if sure and right, the more so the more
options were weighed; low if sure and wrong; hedging moves both towards the middle; 2 without a
readable answer. - overall: the mean of the five.

If the answer is not right, all scores but accuracy count two fifths: whatever the text around a
wrong or unreadable answer, its overall (at most 3.4) is below that of any right one (at least 3.6),
so that a template with a guessed letter earns less than a short right answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from convbench.answers.final import final_answer
from convbench.answers.grade import GradeResult, grade_conversation
from convbench.answers.tags import closes_thinking, opens_thinking
from convbench.errors import DataError
from convbench.schema import Conversation, Example, Mode, ProtocolSpec, text_of
from convbench.views import policy_turns

_CONCLUSION = re.compile(
    r"\b(?:answer(?:\s+is)?|so|say|said|choose|chose|pick|picked|therefore|thus|toward|go with)\b"
    r"[\s:,*(]*+"
    r"(?P<letter>[A-Z])\b(?!\s*[:)])[*).]*"
)
_NO = re.compile(
    r"\b(?:no|not|never|neither|cannot|wrong|incorrect|unlikely|impossible|false|eliminated?"
    r"|rule[sd]? out|miss(?:es)?|lacks?|fails?)\b|n['’]t\b",
    re.IGNORECASE,
)
_YES = re.compile(
    r"\b(?:yes|correct|right|best|fits?|match(?:es)?|true|maybe|plausible|likely)\b", re.IGNORECASE
)
_WHY = re.compile(
    r"\b(?:because|since|so|therefore|thus|hence|means|due to|needs?|as a result)\b", re.IGNORECASE
)
_HEDGE = re.compile(
    r"\b(?:guess|maybe|perhaps|not sure|unsure|might|possibly|probably|do not know|don['’]t know"
    r"|uncertain|could be)\b",
    re.IGNORECASE,
)
_A_SUBJECT = r"(?=[):.,]|\s+(?:is|was|would|can|could|seems|does|doesn|fits|and|or)\b)"


@dataclass(frozen=True, slots=True)
class Features:
    """Surface features of a conversation; shares are from 0 to 1.

    `covered`: share of options that the policy's turns discuss. `decided`: share of options that
    get a yes or a no. `agree`: share of options with the right verdict, a yes for the gold option
    and a no for every other. `chosen`: letters that earlier turns settled on, in order.
    `supported`: the final letter got a yes and no other option did, or it got no verdict and all
    others a no. `why`: a word of reasoning occurs. `hedged`: the final turn sounds unsure. `tags`:
    thinking tags as the mode requires (1 opened and closed in the final turn, 0.5 opened, 0
    missing; in standard mode 1 without any).
    `cut`: share of policy turns cut by max_tokens. `repeated`: share of repeated word triples.
    `longest`: words of the longest policy turn.
    """

    graded: GradeResult
    covered: float
    decided: float
    agree: float
    chosen: tuple[str, ...]
    supported: bool
    why: bool
    hedged: bool
    tags: float
    cut: float
    repeated: float
    longest: int


def gold_letter(judge: str, example: Example) -> str:
    """Return the letter of a question's gold answer.

    Raises DataError, with the same text for every question, if it is not the letter of an option.
    """
    if example.answer is None or example.answer not in example.letters:
        raise DataError(
            f"judge {judge}: the gold answer of the question is not the letter of an option; "
            "expected one"
        )
    return example.answer


def extract_features(
    conversation: Conversation, example: Example, protocol: ProtocolSpec, mode: Mode | None = None
) -> Features:
    """Return the features of a conversation; without `mode` it is thinking if a prompt names the
    tag. Without policy turns no answer is found, and shares are 0."""
    turns = [conversation.turns[i] for i in policy_turns(protocol, conversation)]
    texts = [text_of(turn.content) for turn in turns]
    graded = grade_conversation(protocol, conversation, example)
    talk = about_options("\n".join(texts), example)
    verdicts = {letter: option_verdict(text) for letter, text in talk.items()}
    count = max(1, len(example.letters))
    return Features(
        graded=graded,
        covered=len(talk) / count,
        decided=sum(v is not None for v in verdicts.values()) / count,
        agree=sum(v is (letter == example.answer) for letter, v in verdicts.items()) / count,
        chosen=tuple(filter(None, (_settled_letter(text, example) for text in texts[:-1]))),
        supported=_is_supported(graded.answer, verdicts, example),
        why=any(map(_WHY.search, texts)),
        hedged=bool(texts and _HEDGE.search(texts[-1])),
        tags=_tag_score(texts[-1] if texts else "", mode or _infer_mode(conversation, protocol)),
        cut=sum(turn.finish_reason == "length" for turn in turns) / max(1, len(turns)),
        repeated=repeated_share(" ".join(texts)),
        longest=max((len(text.split()) for text in texts), default=0),
    )


def about_options(text: str, example: Example) -> dict[str, str]:
    """Return the text about each option, by letter, joined by blanks; options with at most three
    words about them are left out.

    The text about an option runs from its mention to the next mention of one, or to an empty line.
    """
    text = _CONCLUSION.sub(" ", text)
    marks = sorted(_option_mentions(text, example))
    pieces: dict[str, str] = {}
    ends = [start for start, _ in marks[1:]] + [len(text)]
    for (start, letter), end in zip(marks, ends, strict=False):
        piece = text[start:end].split("\n\n")[0]
        pieces[letter] = f"{pieces.get(letter, '')} {piece}".strip()
    return {letter: piece for letter, piece in pieces.items() if len(piece.split()) > 3}


def option_verdict(text: str) -> bool | None:
    """Return whether a text about an option rejects it (False) or accepts it (True); None for
    neither. One word of rejection outweighs all words of acceptance."""
    if _NO.search(text):
        return False
    return True if _YES.search(text) else None


def repeated_share(text: str) -> float:
    """Return the share of word triples that occurred before, 0 to 1; case does not count.

    0 for fewer than three words.
    """
    words = text.lower().split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0


def _option_mentions(text: str, example: Example) -> list[tuple[int, str]]:
    """Return (position, letter) of mentions of options: by letter, and by their words if fewer than
    two letters are mentioned.

    Words are weaker evidence: those of one option may occur in the text about another.
    """
    by_letter: list[tuple[int, str]] = []
    by_words: list[tuple[int, str]] = []
    for choice in example.choices:
        letter = re.escape(choice.label)
        alone = _A_SUBJECT if choice.label in ("A", "I") else r"(?![\w'’])"
        named = rf"\b(?:[Oo]ption|[Cc]hoice)\s+[(*]*{letter}\b|(?<![\w'’]){letter}{alone}"
        by_letter += [(match.start(), choice.label) for match in re.finditer(named, text)]
        if len(choice.text) > 2:
            words = rf"(?<!\w){re.escape(choice.text)}(?!\w)"
            by_words += [
                (match.start(), choice.label)
                for match in re.finditer(words, text, flags=re.IGNORECASE)
            ]
    return by_letter if len({letter for _, letter in by_letter}) > 1 else by_letter + by_words


def _settled_letter(text: str, example: Example) -> str | None:
    """Return the letter that an earlier turn settles on, as an answer or as in "so C", "I say C";
    None without one."""
    stated = final_answer(text, example.options, strict=True)
    letters = [m["letter"] for m in _CONCLUSION.finditer(text) if m["letter"] in example.letters]
    return stated or (letters[-1] if letters else None)


def _is_supported(answer: str | None, verdicts: dict[str, bool | None], example: Example) -> bool:
    """Return whether the verdicts on options support the answer: see `Features.supported`."""
    if answer is None:
        return False
    others = [verdicts.get(letter) for letter in example.letters if letter != answer]
    if verdicts.get(answer) is True:
        return True not in others
    return verdicts.get(answer) is None and bool(others) and all(v is False for v in others)


def _tag_score(final: str, mode: Mode) -> float:
    """Return how well the thinking tags of the final turn fit the mode: see `Features.tags`."""
    if mode == "standard":
        return 0.0 if opens_thinking(final) else 1.0
    return (opens_thinking(final) + closes_thinking(final)) / 2


def _infer_mode(conversation: Conversation, protocol: ProtocolSpec) -> Mode:
    """Return `thinking` if a prompt names the thinking tag, else `standard`."""
    prompts = [conversation.systems.get(protocol.policy, "")]
    for turn in conversation.turns:
        prompts.append(turn.instruction or "")
        if turn.speaker != protocol.policy:
            prompts.append(text_of(turn.content))
    return "thinking" if any("<thinking>" in text for text in prompts) else "standard"


VERSION = 3
"""Raised whenever a score may move; part of the judge's fingerprint."""
NEEDS_GOLD_LETTER = True
"""Only questions whose gold answer is the letter of an option can be scored."""


NOT_RIGHT = 0.4
"""Factor of the scores other than accuracy if the answer is not right."""


def score(
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    mode: Mode | None = None,
) -> dict[str, float]:
    """Return the six scores, 0 to 10 with one decimal: `accuracy`, `reasoning`,
    `comprehensiveness`, `pedagogical`, `confidence`, and their mean `overall`.

    Without `mode` it is thinking if a prompt names the tag. Raise DataError for a question whose
    gold answer is not the letter of an option.
    """
    gold = gold_letter("rules", example)
    seen = extract_features(conversation, example, protocol, mode)
    scores = {
        "accuracy": _accuracy_score(seen, gold),
        "reasoning": _reasoning_score(seen),
        "comprehensiveness": 1 + 6 * seen.covered + 3 * seen.decided,
        "pedagogical": _pedagogical_score(seen),
        "confidence": _confidence_score(seen),
    }
    share = 1.0 if seen.graded.correct else NOT_RIGHT
    for name, value in scores.items():
        scores[name] = min(10.0, max(0.0, value)) * (1.0 if name == "accuracy" else share)
    scores["overall"] = sum(scores.values()) / len(scores)
    return {name: round(value, 1) for name, value in scores.items()}


def _accuracy_score(seen: Features, gold: str) -> float:
    if seen.graded.correct:
        return 10
    met_gold = gold in seen.chosen
    if seen.graded.answer is None:
        return 5 if met_gold else 3
    return 2 if met_gold else 1


def _reasoning_score(seen: Features) -> float:
    value = 1.5 + 2.5 * seen.covered + 3.5 * seen.agree + 1.5 * seen.supported + seen.why
    if seen.chosen and seen.graded.answer not in (None, seen.chosen[-1]):
        value -= 2
    return value - 2 * seen.cut - 3 * _excess_repetition(seen)


def _pedagogical_score(seen: Features) -> float:
    value = 3 * bool(seen.graded.correct) + 2.5 * seen.agree + 1.5 * seen.why + 2 * seen.tags
    return value + _length_share(seen) - 2 * _excess_repetition(seen)


def _confidence_score(seen: Features) -> float:
    if seen.graded.answer is None:
        return 2
    weighed = (seen.covered + seen.decided) / 2
    if seen.graded.correct:
        return 6.0 if seen.hedged else 7 + 3 * weighed
    return 4.0 if seen.hedged else 1 + weighed


def _excess_repetition(seen: Features) -> float:
    """Return the repetition above what restating an argument needs, 0 to 1."""
    return max(0.0, seen.repeated - 0.4) / 0.6


def _length_share(seen: Features) -> float:
    """Return 1 for at least 12 words in all and at most 400 in the longest turn; less outside."""
    if seen.longest > 400:
        return max(0.0, (1200 - seen.longest) / 800)
    return min(1.0, seen.graded.words / 12)
