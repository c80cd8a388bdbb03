"""Judge `rules`: six scores by rule. A heuristic, deterministic and offline, not a model.

It uses the gold letter and what can be counted (`Features`): whether the final answer is right,
which options the policy discusses, whether it accepts or rejects them and whether the gold letter
does too, whether the conclusion follows from that, words of reasoning, hedging, thinking tags as
the mode requires, turns cut short, repetition, length. It cannot tell whether an argument is true,
so it can be gamed; use it for demonstrations, smoke tests and ablations, never as the judge of a
result.

- accuracy: 10 for the right answer; 5 or 3 if none can be parsed (5 if an earlier turn settled on
  the gold letter); 2 or 1 for a wrong one (2 likewise).
- reasoning: a base, plus coverage, verdicts that agree with the gold letter, a conclusion that
  follows, words of reason; less for a change of mind at the end, cut turns and repetition.
- comprehensiveness: shares of the options discussed and decided.
- pedagogical: a right answer, verdicts that agree, words of reasoning, tags as required, a
  reasonable length; less for repetition.
- confidence: high if sure and right, the more so the more options were weighed; low if sure and
  wrong; hedging moves both towards the middle; 2 without a readable answer.
- overall: the mean of the five.

If the answer is not right, all scores but accuracy count two fifths: whatever the text around a
wrong or unreadable answer, its overall (at most 3.4) is below that of any right one (at least 3.6),
so that a template with a guessed letter earns less than a short right answer.
"""

from __future__ import annotations

from convbench.errors import DataError
from convbench.judge.features import Features, extract_features
from convbench.schema import Conversation, Example, Mode, ProtocolSpec

VERSION = 3
"""Raised whenever a score may move; part of the judge's fingerprint."""


NOT_RIGHT = 0.4
"""Factor of the scores other than accuracy if the answer is not right."""


def score(
    conversation: Conversation,
    example: Example,
    protocol: ProtocolSpec,
    *,
    mode: Mode | None = None,
) -> dict[str, float]:
    """Return the six scores, 0 to 10, one decimal.

    Raises DataError for a question without options and gold letter.
    """
    if example.answer not in example.letters:
        raise DataError(
            f"judge rules: example {example.example_id} has answer {example.answer!r} and options "
            f"{list(example.letters)}; expected the letter of an option"
        )
    seen = extract_features(conversation, example, protocol, mode)
    scores = {
        "accuracy": _accuracy_score(seen, example.answer or ""),
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
