"""Judges `rules` and `answer`: scores by rule, deterministic and offline, a heuristic.

They use the gold letter and what can be counted, and cannot tell whether an argument is true, so
they can be gamed: use them for demonstrations, smoke tests and ablations.

`rules` gives, 0 to 10: accuracy 10 for the right answer, 3 for none, 1 for a wrong one;
comprehensiveness by the share of options that the policy's turns mention by letter; reasoning by
that share and words of reason; pedagogical by thinking tags as the mode requires and a reasonable
length; confidence by the answer; overall, the mean of the five. Turns that were cut and repetition
cost. If the answer is not right all scores but accuracy count two fifths, so that its overall (at
most 3.2) is below that of any right one (at least 3.8).

`answer` gives the answer alone: 10 right, 2 wrong, 0 unread, so that a policy that does not keep to
the answer's form learns the form first.
"""

from __future__ import annotations

import re

from convbench.answers.grade import grade_conversation
from convbench.answers.tags import closes_thinking, opens_thinking
from convbench.errors import DataError
from convbench.schema import Conversation, Example, Mode, ProtocolSpec, text_of
from convbench.views import policy_turns

VERSION = 4
"""Raised whenever a score may move; part of the judges' fingerprints."""
NEEDS_GOLD_LETTER = True
"""Only questions whose gold answer is the letter of an option can be scored."""
NOT_RIGHT = 0.4
"""Factor of the scores other than accuracy if the answer is not right."""
_REASON = re.compile(r"\b(?:because|since|so|therefore|thus|hence)\b", re.IGNORECASE)


def score(
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    mode: Mode | None = None,
) -> dict[str, float]:
    """Return the six scores of judge `rules`, 0 to 10 with one decimal.

    Without `mode` it is thinking if a prompt names the tag. Raise DataError for a question whose
    gold answer is not the letter of an option.
    """
    _check_gold("rules", example)
    turns = [conversation.turns[i] for i in policy_turns(protocol, conversation)]
    texts = [text_of(turn.content) for turn in turns]
    graded = grade_conversation(protocol, conversation, example)
    mentioned = _mentioned_share("\n".join(texts), example)
    reason = float(any(map(_REASON.search, texts)))
    cut = sum(turn.finish_reason == "length" for turn in turns) / max(1, len(turns))
    lost = 2 * cut + 5 * max(0.0, _repeated_share(" ".join(texts)) - 0.4)
    tags = _tag_share(texts[-1] if texts else "", mode or _infer_mode(conversation, protocol))
    words = max((len(text.split()) for text in texts), default=0)
    length = min(1.0, graded.words / 12, max(0.0, (1200 - words) / 800))
    right = bool(graded.correct)
    scores = {
        "accuracy": 10.0 if right else 3.0 if graded.answer is None else 1.0,
        "reasoning": 2 + 5 * mentioned + 3 * reason - lost,
        "comprehensiveness": 1 + 9 * mentioned,
        "pedagogical": 2 + 3 * tags + 3 * length + 2 * mentioned - lost,
        "confidence": 8.0 if right else 2.0,
    }
    for name in list(scores)[1:]:
        scores[name] = min(10.0, max(0.0, scores[name])) * (1.0 if right else NOT_RIGHT)
    scores["overall"] = sum(scores.values()) / len(scores)
    return {name: round(value, 1) for name, value in scores.items()}


def score_answer(
    conversation: Conversation, example: Example, protocol: ProtocolSpec
) -> dict[str, float]:
    """Return the one score of judge `answer`, `overall`: 10 for the right answer, 2 for a wrong
    one, 0 if it is unread. Raise DataError as `score` does."""
    _check_gold("answer", example)
    graded = grade_conversation(protocol, conversation, example)
    if graded.answer is None:
        return {"overall": 0.0}
    return {"overall": 10.0 if graded.correct else 2.0}


def _check_gold(judge: str, example: Example) -> None:
    """Raise DataError, with the same text for every question, if its gold answer is not the letter
    of an option."""
    if example.answer not in example.letters:
        raise DataError(
            f"judge {judge}: the gold answer of the question is not the letter of an option; "
            "expected one"
        )


def _mentioned_share(text: str, example: Example) -> float:
    """Return the share of options that a text mentions by letter: `option A`, or `A` before a sign
    or a verb, which tells it from the article."""
    verbs = r"(?=[):.,]|\s+(?:is|was|has|can|could|would|does|fits)\b)"
    patterns = (
        rf"\b[Oo]ption {re.escape(x)}\b|(?<![\w']){re.escape(x)}{verbs}" for x in example.letters
    )
    return sum(re.search(x, text) is not None for x in patterns) / max(1, len(example.letters))


def _repeated_share(text: str) -> float:
    """Return the share of word triples that occurred before, 0 to 1; case does not count."""
    words = text.lower().split()
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0


def _tag_share(final: str, mode: Mode) -> float:
    """Return 1 for thinking tags in the final turn as the mode requires, 0.5 if they only open."""
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
