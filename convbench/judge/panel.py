"""What a panel of judges says together: means, agreement, and whether length pays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, islice, repeat
from typing import Any

from convbench.answers.length import word_count
from convbench.schema import Conversation, JudgeSpec, ProtocolSpec, Verdict, text_of
from convbench.stats.agreement import Agreement, agreement, alpha, spearman
from convbench.stats.columns import Column, scattered
from convbench.stats.constant import ConstantAnswer, constant_answer
from convbench.stats.estimate import Estimate, estimate
from convbench.store.keys import Hashes, Names
from convbench.views import policy_turns

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


class _Given:
    """What one judge gave: a place in every column for each verdict, nan where it says nothing."""

    def __init__(self) -> None:
        self.good, self.failed, self.fingerprint = 0, 0, ""
        self.names = Hashes()
        """Of the conversations."""
        self.scores: dict[str, Column[float]] = {}
        self.rewards = Column(array("d"))
        self.constants: list[tuple[int, Mapping[str, float], Mapping[str, Any]]] = []
        """Of verdicts that say what constant answers would score: place, scores and details."""

    def add(self, verdict: Verdict) -> None:
        self.fingerprint = verdict.fingerprint
        reward = None
        if verdict.failure is None:
            self.good += 1
            reward = verdict.reward
            if "constant" in verdict.scores:
                self.constants.append((len(self.names.all), verdict.scores, verdict.details))
        else:
            self.failed += 1
        self.rewards.append(math.nan if reward is None else reward)
        for name, score in verdict.scores.items():
            self.column(name).append(score)
        self.names.add(verdict.conversation_id)

    def column(self, name: str) -> Column[float]:
        """Return the column of a metric, as long as there are verdicts."""
        found = self.scores.get(name)
        if found is None:
            found = self.scores[name] = Column(array("d"))
        missing = len(self.names.all) - len(found)
        if missing:
            found.extend(repeat(math.nan, missing))
        return found

    def columns(self) -> Iterator[tuple[str, Column[float]]]:
        """Yield every metric with its column, as long as there are verdicts."""
        return ((name, self.column(name)) for name in self.scores)


def panel(
    protocol: ProtocolSpec,
    conversations: Iterable[Conversation],
    verdicts: Iterable[Verdict],
    metric: str = "overall",
    groups: Callable[[str], str] = lambda example_id: example_id,
    specs: Mapping[str, JudgeSpec] | None = None,
    beside: str | None = None,
) -> Panel:
    """Return the statistics of a run's verdicts, the newest of each (conversation, judge).

    Conversations that failed have nothing to be judged and do not count. `groups` tells each
    example's independent unit; without it each is its own. `specs` tells by fingerprint what each
    judge's headline is and its scale; without one it is `metric`, as it stands. `beside`: compare
    every judge with this one alone. All lies in files.
    """
    ids, words = Hashes(), Column(array("i"))
    tasks, units = Column(array("q")), Column(array("q"))
    for talk in conversations:
        if talk.failure is None:
            ids.add(talk.conversation_id)
            words.append(_words(protocol, talk))
            tasks.append(hash(talk.example_id))
            units.append(hash(groups(talk.example_id)))
    built = Names(ids)
    by_judge: dict[str, _Given] = {}
    for verdict in verdicts:
        if verdict.conversation_id in built:
            by_judge.setdefault(verdict.judge, _Given()).add(verdict)
    del built
    means: list[JudgeMeans] = []
    headline: dict[str, Column[float]] = {}
    for judge, given in by_judge.items():
        spec = (specs or {}).get(given.fingerprint)
        at = ids.places(given.names)
        head = given.column(spec.headline if spec else metric)
        head = scattered(head, at, len(ids.all), math.nan)
        means.append(_means(judge, given, at, (words, tasks, units), head))
        if not (spec and spec.relative):
            headline[judge] = _share(head, spec)
    if beside is None:
        couples = list(combinations(islice(headline, MOST_PAIRED), 2))
    else:
        couples = [(name, beside) for name in headline if beside in headline and name != beside]
    return Panel(
        metric,
        tuple(means),
        tuple(_pair(headline, units, *two) for two in couples),
        0 if beside else max(0, len(headline) - MOST_PAIRED),
        alpha(list(headline.values())) if len(headline) > 1 else None,
    )


def _share(head: Column[float], spec: JudgeSpec | None) -> Column[float]:
    """Return a judge's headline scores brought to 0 to 1 by its scale."""
    low, high = spec.limits(spec.headline) if spec else (0.0, 1.0)
    return Column(array("d"), ((value - low) / (high - low) for value in head))


def _words(protocol: ProtocolSpec, conversation: Conversation) -> int:
    turns = conversation.turns
    return word_count(text_of(turns[i].content) for i in policy_turns(protocol, conversation))


def _means(
    judge: str,
    given: _Given,
    at: Column[int],
    talks: tuple[Column[int], Column[int], Column[int]],
    head: Column[float],
) -> JudgeMeans:
    """Return what a judge gave. `talks` are words, example and unit of every conversation, `head`
    its headline scores of them, nan where there is none, `at` the places of its verdicts'
    conversations among them."""
    words, tasks, units = talks
    means = {name: _mean(column) for name, column in given.columns()}
    rewards = zip(units, scattered(given.rewards, at, len(units), math.nan), strict=True)
    scores, lengths = Column(array("d")), Column(array("i"))
    for length, score in zip(words, head, strict=True):
        if score == score:
            scores.append(score)
            lengths.append(length)
    return JudgeMeans(
        judge=judge,
        scored=given.good,
        failed=given.failed,
        means={name: mean for name, mean in means.items() if mean is not None},
        reward=estimate((unit, reward) for unit, reward in rewards if reward == reward),
        length=spearman(scores, lengths),
        constant=constant_answer(
            (str(tasks[at[place]]), scored, told) for place, scored, told in given.constants
        ),
    )


def _pair(
    scores: Mapping[str, Column[float]], units: Column[int], first: str, second: str
) -> Agreement:
    groups, one, other = Column(array("q")), Column(array("d")), Column(array("d"))
    for unit, a, b in zip(units, scores[first], scores[second], strict=True):
        if a == a and b == b:
            groups.append(unit)
            one.append(a)
            other.append(b)
    return agreement((first, second), groups, one, other)


def _mean(column: Column[float]) -> float | None:
    count = sum(value == value for value in column)
    return math.fsum(value for value in column if value == value) / count if count else None
