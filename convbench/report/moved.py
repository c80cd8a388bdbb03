"""Style drift of a policy from Base, and another judge's gain at equal length and style."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from convbench.report.policies import Policy
from convbench.schema import text_of
from convbench.stats.covariates import Outcome, adjusted, drift
from convbench.stats.means import Estimate, estimate, side
from convbench.views import policy_turns

WORDS = (2, 6)
"""Fewest and most words in a phrase."""
FAR = 0.2
"""Drift in standard deviations from which a feature is reported and controlled for."""
LEAST = 0.1
"""Least rise in the share of conversations for which a phrase is reported."""
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
    """A phrase that more of a policy's conversations contain than of Base's."""

    text: str
    before: float
    """Share of Base's conversations with it."""
    after: float
    """Share of the policy's conversations with it."""
    pays: float | None
    """Mean score of the policy's conversations with it minus without it; None if either has none.
    """


@dataclass(frozen=True, slots=True)
class StylePair:
    """Style features of Base's text and of the policy's at one question, sample and temperature."""

    group: str
    cell: str
    """Question and temperature, shared by the samples of a question."""
    before: Mapping[str, float]
    after: Mapping[str, float]


def style_pairs(
    base: Policy, other: Policy, before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, StylePair]:
    """Return the features of both policies' texts by unit (question, sample, temperature). `before`
    and `after` are texts by conversation_id."""
    first = {row.unit: before[row.talk] for row in base.rows if row.talk in before}
    return {
        row.unit: StylePair(
            row.group,
            f"{row.unit.rpartition('#')[0]}@{row.temperature}",
            features(first[row.unit]),
            features(after[row.talk]),
        )
        for row in other.rows
        if row.unit in first and row.talk in after
    }


def features(text: str) -> dict[str, float]:
    """Return the counts of words and of each style feature in a text."""
    counts = {name: float(len(pattern.findall(text))) for name, pattern in _STYLE.items()}
    return {WORDS_FEATURE: float(len(_WORD.findall(text))), **counts}


def drifts(pairs: Collection[StylePair]) -> dict[str, Estimate]:
    """Return the drift of word count and of each style feature that occurs, in Base's standard
    deviations, paired by unit."""
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
    """Return the phrase whose share of conversations rose most; of phrases within 0.02 of it, the
    longest. None if none rose by LEAST. Texts and scores are by conversation_id."""
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
    """Return the policy's text in each completed conversation of the report, by conversation_id."""
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
    """Return all word n-grams of a text, n as WORDS says, in lower case."""
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


TOO_FAR = 2.0
"""Most standard deviations that a controlled feature may drift. Beyond, the two policies' texts
hardly overlap, and a regression would extrapolate."""
SHARE = 0.1
"""Change in the share of texts that have a feature, from which its presence is controlled too."""
PER_GROUP = 5
"""Fewest groups for each controlled feature."""


@dataclass(frozen=True, slots=True)
class StyleControl:
    """A judge's gain at equal length and style."""

    gain: Estimate | None
    """None if too few texts of equal length and style can be compared."""
    moved: Mapping[str, float] = field(default_factory=dict)
    """Features that drifted (including word count), with the drift in standard deviations."""

    @property
    def names(self) -> str:
        """Return the features that drifted most, listed: those with at least half of the largest
        drift."""
        far = max(self.moved.values(), default=0.0) / 2
        names = [name for name, shift in self.moved.items() if shift >= far]
        return ", ".join("length" if name == WORDS_FEATURE else name for name in names)


def style_control(
    scores: Iterable[tuple[str, str, float, float]], style: Mapping[str, StylePair]
) -> StyleControl:
    """Return a judge's gain at equal length and style. `scores` are (group, unit, Base's score, the
    policy's score), `style` the features by unit."""
    pairs = [(place, a, b) for _, place, a, b in scores if place in style]
    here = [style[place] for place, *_ in pairs]
    moved = {name: _shift(_column(here, name)) for name in FEATURES if _moves(here, name)}
    columns = _columns(here, moved)
    if not moved and not columns:
        return StyleControl(estimate((style[p].group, b - a) for p, a, b in pairs))
    groups = len({pair.group for pair in here})
    if groups < PER_GROUP * len(columns) or any(_shift(one) > TOO_FAR for one in columns):
        return StyleControl(None, moved)
    scale = [_spread(one) for one in columns]
    outcomes = []
    for at, (place, a, b) in enumerate(pairs):
        for second, y in enumerate((a, b)):
            x = [one[second][at] / unit for one, unit in zip(columns, scale, strict=True)]
            outcomes.append(Outcome(style[place].group, style[place].cell, bool(second), y, x))
    gain = adjusted(outcomes)
    return StyleControl(None if gain is None else replace(gain, n=len(pairs)), moved)


Column = tuple[Sequence[float], Sequence[float]]
"""Values of a feature in Base's texts, and in the policy's at the same units."""


def _columns(pairs: Collection[StylePair], moved: Collection[str]) -> list[Column]:
    """Return the columns to control for: word count always (at no cost if it did not drift), each
    feature that drifted, and its presence if the share of texts with it changed by SHARE."""
    found = []
    for name in FEATURES:
        if name in moved or name == WORDS_FEATURE:
            one = _column(pairs, name)
            found.append(one)
            has: Column = ([float(x > 0) for x in one[0]], [float(x > 0) for x in one[1]])
            if abs(_mean(has[1]) - _mean(has[0])) >= SHARE:
                found.append(has)
    return [one for one in found if len({*one[0], *one[1]}) > 1]


def _moves(pairs: Collection[StylePair], name: str) -> bool:
    """Return True if a feature drifted: significantly, or by FAR standard deviations."""
    one = _column(pairs, name)
    change = estimate((pair.group, pair.after[name] - pair.before[name]) for pair in pairs)
    sure = change is not None and side(change.interval) != 0
    return sure or _shift(one) >= FAR


def _column(pairs: Collection[StylePair], name: str) -> Column:
    return [pair.before[name] for pair in pairs], [pair.after[name] for pair in pairs]


def _shift(one: Column) -> float:
    """Return the absolute drift of a feature in standard deviations."""
    apart = abs(_mean(one[1]) - _mean(one[0])) if one[0] else 0.0
    return apart / _spread(one) if apart else 0.0


def _spread(one: Column) -> float:
    """Return the pooled standard deviation within the two policies, at least 1e-9."""
    squares = (math.fsum((x - _mean(side)) ** 2 for x in side) / len(side) for side in one)
    return max(math.sqrt(math.fsum(squares) / 2), 1e-9)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
