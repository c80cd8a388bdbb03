"""How a policy's texts moved from Base's: length and style, and the phrase that rose most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from convbench.report.policies import Policy
from convbench.schema import text_of
from convbench.stats.drift import drift
from convbench.stats.estimate import Estimate
from convbench.views import policy_turns

WORDS = (2, 6)
"""Fewest and most words of a phrase."""
LEAST = 0.1
"""Least rise in the share of conversations that is worth a word."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_STYLE: Mapping[str, re.Pattern[str]] = {
    "list items": re.compile(r"^[^\S\n]*+(?:[-*•]|\d++[.)])\s", re.MULTILINE),
    "bold and headings": re.compile(r"\*\*|^#+\s", re.MULTILINE),
    "questions": re.compile(r"\?"),
    "exclamations": re.compile(r"!"),
    "hedges": re.compile(r"\b(?:maybe|perhaps|might|probably|possibly|seems?|unsure)\b", re.I),
    "claims to be sure": re.compile(
        r"\b(?:certain(?:ly)?|definitely|clearly|confident|sure)\b", re.I
    ),
    "thanks and praise": re.compile(r"\b(?:thank|great|excellent|good|wonderful|glad)\b", re.I),
}


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that stand in more of a policy's conversations than in Base's."""

    text: str
    before: float
    """Share of Base's conversations."""
    after: float
    """Share of the policy's."""
    pays: float | None
    """Mean score with it less without it, over the policy's conversations; None where all or none
    have it."""


def drifts(base: Policy, other: Policy) -> dict[str, Estimate]:
    """Return the drift of words and of each feature of style that either policy shows, in Base's
    standard deviations, over the same places."""
    first, second = texts(base), texts(other)
    rows = {row.unit: (row.group, first.get(row.talk)) for row in base.rows}
    pairs = [
        (rows[row.unit][0], rows[row.unit][1], second.get(row.talk))
        for row in other.rows if row.unit in rows
    ]  # fmt: skip
    found = {}
    for name in ("words", *_STYLE):
        values = [(group, _value(name, a), _value(name, b)) for group, a, b in pairs if a and b]
        moved = drift(values) if any(x or y for _, x, y in values) else None
        if moved is not None:
            found[name] = moved
    return found


def phrase(base: Policy, other: Policy, scores: Mapping[str, float]) -> Phrase | None:
    """Return the phrase whose share of conversations rose most, the longest of those that rose
    alike; None where none rose by LEAST. `scores` by conversation_id."""
    before, after = texts(base), texts(other)
    if not before or not after:
        return None
    one, two = Counter(_all(before)), Counter(_all(after))
    best, rise = None, LEAST
    for text, count in two.items():
        up = count / len(after) - one[text] / len(before)
        if up > rise + 0.02 or (best and abs(up - rise) <= 0.02 and len(text) > len(best)):
            best, rise = text, max(up, rise)
    if best is None:
        return None
    having = {name for name, said in after.items() if best in phrases(said)}
    with_it = [scores[name] for name in after if name in scores and name in having]
    without = [scores[name] for name in after if name in scores and name not in having]
    pays = None
    if with_it and without:
        pays = sum(with_it) / len(with_it) - sum(without) / len(without)
    return Phrase(best, one[best] / len(before), two[best] / len(after), pays)


def texts(policy: Policy) -> dict[str, str]:
    """Return what the policy said in each conversation of the report, by conversation_id."""
    wanted = {row.talk for row in policy.rows}
    protocol = policy.run.manifest.protocol
    return {
        talk.conversation_id: "\n".join(
            text_of(talk.turns[i].content) for i in policy_turns(protocol, talk)
        )
        for talk in policy.run.conversations()
        if talk.conversation_id in wanted and talk.failure is None
    }


def phrases(text: str) -> set[str]:
    """Return the phrases of a text, in lower case."""
    words = [word.lower() for word in _WORD.findall(text)]
    low, high = WORDS
    return {
        " ".join(words[i : i + size])
        for size in range(low, high + 1)
        for i in range(len(words) - size + 1)
    }


def _all(found: Mapping[str, str]) -> Iterator[str]:
    for text in found.values():
        yield from phrases(text)


def _value(name: str, text: str) -> float:
    if name == "words":
        return float(len(_WORD.findall(text)))
    return float(len(_STYLE[name].findall(text)))
