"""Style drift of a policy from Base, and another judge's gain at equal length and style."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from convbench.reports.policies import Policy
from convbench.schema import text_of
from convbench.stats.covariates import SideOutcome, adjusted_difference, mean_drift
from convbench.stats.means import Estimate, estimate_mean, interval_side
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
    """Return the features of both policies' texts by unit (question, sample, temperature), in the
    order of `other`.

    `before` and `after` are texts by conversation_id. A unit without both texts is left out.
    """
    first = {
        row.unit: before[row.conversation_id]
        for row in base.observations
        if row.conversation_id in before
    }
    return {
        row.unit: StylePair(
            row.group,
            f"{row.unit.rpartition('#')[0]}@{row.temperature}",
            style_features(first[row.unit]),
            style_features(after[row.conversation_id]),
        )
        for row in other.observations
        if row.unit in first and row.conversation_id in after
    }


def style_features(text: str) -> dict[str, float]:
    """Return the number of words and of matches of each style feature in a text, as floats, by all
    names in FEATURES."""
    counts = {name: float(len(pattern.findall(text))) for name, pattern in _STYLE.items()}
    return {WORDS_FEATURE: float(len(_WORD.findall(text))), **counts}


def style_drifts(pairs: Collection[StylePair]) -> dict[str, Estimate]:
    """Return the mean change of word count and of each style feature, in standard deviations of
    Base's texts, by feature.

    Features that occur in no text, and those that are constant in Base's texts but change, are left
    out. Empty without pairs.
    """
    estimates = {}
    for name in FEATURES:
        values = [(pair.group, pair.before[name], pair.after[name]) for pair in pairs]
        drifted = mean_drift(values) if any(x or y for _, x, y in values) else None
        if drifted is not None:
            estimates[name] = drifted
    return estimates


def risen_phrase(
    before: Mapping[str, str], after: Mapping[str, str], scores: Mapping[str, float]
) -> Phrase | None:
    """Return the phrase whose share of conversations rose most; of those whose rise is within 0.02
    of it the longest, of several the last in the alphabet.

    None if no share rose by 0.1, or one side has no texts. Texts and scores are by
    conversation_id; `scores` are the policy's.
    """
    if not before or not after:
        return None
    before_counts, after_counts = Counter(_all_phrases(before)), Counter(_all_phrases(after))
    rises = {
        text: count / len(after) - before_counts[text] / len(before)
        for text, count in after_counts.items()
    }
    most = max(rises.values(), default=0.0)
    if most < LEAST:
        return None
    best = max(
        (text for text, rise in rises.items() if rise >= most - 0.02),
        key=lambda text: (len(text), text),
    )
    having = {name for name, reply in after.items() if best in text_phrases(reply)}
    with_it = [scores[name] for name in after if name in scores and name in having]
    without = [scores[name] for name in after if name in scores and name not in having]
    pays = None
    if with_it and without:
        pays = sum(with_it) / len(with_it) - sum(without) / len(without)
    return Phrase(best, before_counts[best] / len(before), after_counts[best] / len(after), pays)


def policy_texts(policy: Policy) -> dict[str, str]:
    """Return the policy's turns in each completed conversation, joined by line breaks, by
    conversation_id.

    Only conversations among the observations count. Of a pooled policy only those of its first run
    are found.
    """
    talk_ids = {row.conversation_id for row in policy.observations}
    protocol = policy.run.manifest.protocol
    return {
        talk.conversation_id: "\n".join(
            text_of(talk.turns[i].content) for i in policy_turns(protocol, talk)
        )
        for talk in policy.run.conversations()
        if talk.conversation_id in talk_ids and talk.failure is None
    }


def text_phrases(text: str) -> set[str]:
    """Return all different sequences of 2 to 6 words of a text in lower case, words joined by a
    blank; empty for fewer than two words."""
    words = [word.lower() for word in _WORD.findall(text)]
    low, high = WORDS
    return {
        " ".join(words[i : i + size])
        for size in range(low, high + 1)
        for i in range(len(words) - size + 1)
    }


def _all_phrases(texts: Mapping[str, str]) -> Iterator[str]:
    for text in texts.values():
        yield from text_phrases(text)


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
    shifts: Mapping[str, float] = field(default_factory=dict)
    """Features that drifted (including word count), with the drift in standard deviations."""

    @property
    def feature_names(self) -> str:
        """Return the features with at least half of the largest drift, joined by commas; "" if none
        drifted. Word count is `length`."""
        far = max(self.shifts.values(), default=0.0) / 2
        names = [name for name, shift in self.shifts.items() if shift >= far]
        return ", ".join("length" if name == WORDS_FEATURE else name for name in names)


def style_control(
    scores: Iterable[tuple[str, str, float, float]], style: Mapping[str, StylePair]
) -> StyleControl:
    """Return a judge's gain, the policy's score minus Base's, at equal length and style, and the
    features that drifted.

    `scores` are (group, unit, Base's score, the policy's score), `style` the features by unit;
    units without features are ignored. The gain is None without units, with fewer than five groups
    for each controlled feature, or if one drifted by more than two standard deviations.
    """
    pairs = [(key, a, b) for _, key, a, b in scores if key in style]
    if not pairs:
        return StyleControl(None)
    here = [style[key] for key, *_ in pairs]
    shifts = {
        name: _column_shift(_feature_column(here, name))
        for name in FEATURES
        if _has_moved(here, name)
    }
    columns = _control_columns(here, shifts)
    if not shifts and not columns:
        return StyleControl(estimate_mean((style[p].group, b - a) for p, a, b in pairs))
    groups = len({pair.group for pair in here})
    if groups < PER_GROUP * len(columns) or any(
        _column_shift(column) > TOO_FAR for column in columns
    ):
        return StyleControl(None, shifts)
    scale = [_within_deviation(column) for column in columns]
    outcomes = []
    for at, (key, a, b) in enumerate(pairs):
        for second, y in enumerate((a, b)):
            x = [column[second][at] / unit for column, unit in zip(columns, scale, strict=True)]
            outcomes.append(SideOutcome(style[key].group, style[key].cell, bool(second), y, x))
    gain = adjusted_difference(outcomes)
    return StyleControl(None if gain is None else replace(gain, n=len(pairs)), shifts)


FeatureColumn = tuple[Sequence[float], Sequence[float]]
"""Values of a feature in Base's texts, and in the policy's at the same units."""


def _control_columns(pairs: Collection[StylePair], shifts: Collection[str]) -> list[FeatureColumn]:
    """Return the columns to control for: word count always (at no cost if it did not drift), each
    feature that drifted, and its presence if the share of texts with it changed by SHARE."""
    columns = []
    for name in FEATURES:
        if name in shifts or name == WORDS_FEATURE:
            column = _feature_column(pairs, name)
            columns.append(column)
            has: FeatureColumn = (
                [float(x > 0) for x in column[0]],
                [float(x > 0) for x in column[1]],
            )
            if abs(_mean(has[1]) - _mean(has[0])) >= SHARE:
                columns.append(has)
    return [column for column in columns if len({*column[0], *column[1]}) > 1]


def _has_moved(pairs: Collection[StylePair], name: str) -> bool:
    """Return True if a feature drifted: significantly, or by FAR standard deviations."""
    column = _feature_column(pairs, name)
    change = estimate_mean((pair.group, pair.after[name] - pair.before[name]) for pair in pairs)
    sure = change is not None and interval_side(change.interval) != 0
    return sure or _column_shift(column) >= FAR


def _feature_column(pairs: Collection[StylePair], name: str) -> FeatureColumn:
    return [pair.before[name] for pair in pairs], [pair.after[name] for pair in pairs]


def _column_shift(column: FeatureColumn) -> float:
    """Return the absolute drift of a feature in standard deviations."""
    distance = abs(_mean(column[1]) - _mean(column[0])) if column[0] else 0.0
    return distance / _within_deviation(column) if distance else 0.0


def _within_deviation(column: FeatureColumn) -> float:
    """Return the pooled standard deviation within the two policies, at least 1e-9."""
    squares = (math.fsum((x - _mean(side)) ** 2 for x in side) / len(side) for side in column)
    return max(math.sqrt(math.fsum(squares) / 2), 1e-9)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
