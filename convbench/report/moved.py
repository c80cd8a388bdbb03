"""How a policy's texts moved from Base's: length and style, and the phrase that rose most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from convbench.report.policies import Policy
from convbench.schema import text_of
from convbench.stats.covariates import drift
from convbench.stats.means import Estimate
from convbench.views import policy_turns

WORDS = (2, 6)
"""Fewest and most words of a phrase."""
FAR = 0.2
"""Drift, in standard deviations, that is worth a line, and to be controlled."""
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
    "paragraphs": re.compile(r"\n[ \t]*\n"),
    "code and tables": re.compile(r"`|^[ \t]*\|", re.MULTILINE),
    "emoji": re.compile(r"[\u2600-\u27bf\U0001f300-\U0001faff]"),
}
WORDS_FEATURE = "words"
FEATURES = (WORDS_FEATURE, *_STYLE)


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


@dataclass(frozen=True, slots=True)
class StylePair:
    """The features of Base's text and of the policy's at one place."""

    group: str
    cell: str
    """The question and temperature, which conversations of several samples share."""
    before: Mapping[str, float]
    after: Mapping[str, float]


def style_pairs(
    base: Policy, other: Policy, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, StylePair]:
    """Return the features of both policies' texts, by place. Texts are by conversation_id, as
    `texts` returns them."""
    first = {row.unit: before[row.talk] for row in base.rows if row.talk in before}
    return {
        row.unit: StylePair(
            row.group, f"{row.unit.rpartition('#')[0]}@{row.temperature}",
            features(first[row.unit]), features(after[row.talk]),
        )
        for row in other.rows if row.unit in first and row.talk in after
    }  # fmt: skip


def features(text: str) -> dict[str, float]:
    """Return how many words a text has, and how many of each feature of style."""
    counts = {name: float(len(pattern.findall(text))) for name, pattern in _STYLE.items()}
    return {WORDS_FEATURE: float(len(_WORD.findall(text))), **counts}


def drifts(pairs: Collection[StylePair]) -> dict[str, Estimate]:
    """Return the drift of words and of each feature of style that either policy shows, in Base's
    standard deviations, over the same places."""
    found = {}
    for name in FEATURES:
        values = [(pair.group, pair.before[name], pair.after[name]) for pair in pairs]
        drifted = drift(values) if any(x or y for _, x, y in values) else None
        if drifted is not None:
            found[name] = drifted
    return found


def phrase(
    before: Mapping[str, str], after: Mapping[str, str], scores: Mapping[str, float]
) -> Phrase | None:
    """Return the phrase whose share of conversations rose most, the longest of those that rose
    alike; None where none rose by LEAST. All are by conversation_id."""
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
