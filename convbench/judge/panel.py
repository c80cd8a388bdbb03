"""What a panel of judges says together: means, agreement, and whether length pays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, islice
from operator import sub
from typing import Any, NamedTuple

from convbench.schema import JudgeSpec, Verdict
from convbench.stats.agreement import Agreement, agreement, alpha, spearman
from convbench.stats.means import ConstantAnswer, Estimate, constant_answer, estimate
from convbench.store.index import VerdictRow
from convbench.store.keys import Hashes, Ordinals

MOST_PAIRED = 32
"""Judges of which every two are compared: with each more the pairs grow by all before it."""


@dataclass(frozen=True, slots=True)
class JudgeMeans:
    """One judge's scores: how many conversations it scored and failed on, means by metric."""

    judge: str
    scored: int
    failed: int
    means: Mapping[str, float]
    reward: Estimate | None
    """Mean reward with its clustered error; None where nothing is scored."""
    length: float | None
    """Spearman correlation of the headline score with the policy's words; None where neither
    varies. A judge that likes long answers shows here."""
    constant: ConstantAnswer | None = None
    """What constant answers score with this judge, where it says so."""


@dataclass(frozen=True, slots=True)
class Panel:
    """All judges of a run. Correlations and agreement are None where they cannot be told."""

    metric: str
    """The headline metric of all judges; `overall` where they have several."""
    judges: tuple[JudgeMeans, ...]
    pairs: tuple[Agreement, ...] = ()
    """How every two agree by their headlines, each brought to 0 to 1 by its judge's scale."""
    unpaired: int = 0
    """Judges beyond MOST_PAIRED, which are compared with no other."""
    alpha: float | None = None
    """Ordinal Krippendorff alpha of these over all judges."""


class Talk(NamedTuple):
    """What a panel has to know of a conversation."""

    conversation_id: str
    example_id: str
    words: int
    """Words of the policy's turns."""


class _Units:
    """Conversations that were judged, each at its place in every column."""

    def __init__(self) -> None:
        self.words = array("i")
        self.tasks = array("q")
        """Hashes of their examples."""
        self.groups = array("q")
        """Hashes of their independent units."""


class _Judge:
    """What one judge gave to conversations, each named by its place."""

    def __init__(self, count: int) -> None:
        self.good, self.failed, self.fingerprint = 0, 0, ""
        self.rewards = array("d", [math.nan]) * count
        """Of every conversation, nan where there is none."""
        self.scores: dict[str, tuple[array[int], array[float]]] = {}
        """By metric, places and scores."""
        self.constants: list[tuple[int, Mapping[str, float], Mapping[str, Any]]] = []
        """Of verdicts that say what constant answers would score: place, scores and details."""

    def add(self, place: int, verdict: Verdict | VerdictRow) -> None:
        self.fingerprint, scores = verdict.fingerprint, verdict.scores
        if verdict.scored:
            self.good += 1
            self.rewards[place] = math.nan if verdict.reward is None else verdict.reward
            if "constant" in scores:
                self.constants.append((place, scores, verdict.details))
        else:
            self.failed += 1
        for name, score in scores.items():
            if name not in self.scores:
                self.scores[name] = array("i"), array("d")
            places, values = self.scores[name]
            places.append(place)
            values.append(score)

    def column(self, metric: str) -> array[float]:
        """Return the score of every conversation, nan where there is none."""
        column = array("d", [math.nan]) * len(self.rewards)
        for place, score in zip(*self.scores.get(metric, ((), ())), strict=True):
            column[place] = score
        return column


def panel(
    talks: Iterable[Talk],
    verdicts: Iterable[Verdict | VerdictRow],
    metric: str = "overall",
    groups: Callable[[str], str] = lambda example_id: example_id,
    specs: Mapping[str, JudgeSpec] | None = None,
    beside: str | None = None,
) -> Panel:
    """Return the statistics of a run's verdicts, the newest of each (conversation, judge).

    `talks` are conversations that ended well; others have nothing to be judged. `groups` tells
    each example's independent unit; without it each is its own. `specs` tells by fingerprint what
    each judge's headline is and its scale; without one it is `metric`, as it stands. `beside`:
    compare every judge with this one alone.
    """
    ids, units = Hashes(), _Units()
    for talk in talks:
        ids.add(talk.conversation_id)
        units.words.append(talk.words)
        units.tasks.append(hash(talk.example_id))
        units.groups.append(hash(groups(talk.example_id)))
    places = Ordinals(ids)
    by_judge: dict[str, _Judge] = {}
    for verdict in verdicts:
        place = places.of(verdict.conversation_id)
        if place is not None:
            if verdict.judge not in by_judge:
                by_judge[verdict.judge] = _Judge(len(units.words))
            by_judge[verdict.judge].add(place, verdict)
    means: list[JudgeMeans] = []
    headline: dict[str, array[float]] = {}
    for name, judge in by_judge.items():
        spec = (specs or {}).get(judge.fingerprint)
        head = judge.column(spec.headline if spec else metric)
        means.append(_means(name, judge, units, head))
        if not (spec and spec.relative):
            headline[name] = _share(head, spec)
    if beside is None:
        couples = list(combinations(islice(headline, MOST_PAIRED), 2))
    else:
        couples = [(name, beside) for name in headline if beside in headline and name != beside]
    return Panel(
        metric,
        tuple(means),
        tuple(_pair(headline, units.groups, *two) for two in couples),
        0 if beside else max(0, len(headline) - MOST_PAIRED),
        alpha(list(headline.values())) if len(headline) > 1 else None,
    )


def _share(head: array[float], spec: JudgeSpec | None) -> array[float]:
    """Return a judge's headline scores brought to 0 to 1 by its scale."""
    low, high = spec.limits(spec.headline) if spec else (0.0, 1.0)
    return array("d", ((value - low) / (high - low) for value in head))


def _means(judge_name: str, judge: _Judge, units: _Units, head: array[float]) -> JudgeMeans:
    """Return what a judge gave; `head` are its headline scores."""
    means = {name: math.fsum(scores) / len(scores) for name, (_, scores) in judge.scores.items()}
    rewards = zip(units.groups, judge.rewards, strict=True)
    scored = array("d", (score for score in head if score == score))
    words = (n for score, n in zip(head, units.words, strict=True) if score == score)
    return JudgeMeans(
        judge=judge_name,
        scored=judge.good,
        failed=judge.failed,
        means=means,
        reward=estimate((unit, reward) for unit, reward in rewards if reward == reward),
        length=spearman(scored, array("i", words)),
        constant=constant_answer(
            (str(units.tasks[place]), scores, details) for place, scores, details in judge.constants
        ),
    )


def _pair(
    scores: Mapping[str, array[float]], groups: array[int], first: str, second: str
) -> Agreement:
    one, other = scores[first], scores[second]
    both = array("q", (at for at, n in enumerate(map(sub, one, other)) if n == n))
    return agreement(
        (first, second),
        array("q", map(groups.__getitem__, both)),
        array("d", map(one.__getitem__, both)),
        array("d", map(other.__getitem__, both)),
    )
