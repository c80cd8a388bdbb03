"""Statistics of a panel of judges: means, agreement, and the correlation of scores with length."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations, islice
from operator import sub
from typing import Any, NamedTuple

from convbench.schema import JudgeSpec, Verdict
from convbench.stats.agreement import JudgeAgreement, judge_agreement, krippendorff_alpha, spearman
from convbench.stats.means import ConstantAnswer, Estimate, constant_answer, estimate_mean
from convbench.store.index import VerdictRow
from convbench.store.keys import Hashes, NameOrdinals

MOST_PAIRED = 32
"""Most judges that are compared in pairs; the number of pairs grows with the square."""


@dataclass(frozen=True, slots=True)
class JudgeMeans:
    """One judge's scores: number of conversations scored and failed, and means by metric."""

    judge: str
    scored: int
    failed: int
    means: Mapping[str, float]
    reward: Estimate | None
    """Mean reward with its clustered error; None without a score."""
    length: float | None
    """Spearman correlation of the headline score with the policy's words; None if either is
    constant. High for a judge that favours long answers."""
    constant: ConstantAnswer | None = None
    """Scores of constant answers, if the judge's verdicts have them."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Statistics of all judges of a run. Undefined correlations and agreements are None."""

    metric: str
    """The common headline metric of all judges; `overall` if they have several."""
    judges: tuple[JudgeMeans, ...]
    pairs: tuple[JudgeAgreement, ...] = ()
    """Agreement of every two judges on their headline scores, each scaled to 0 to 1."""
    unpaired: int = 0
    """Judges beyond MOST_PAIRED, which are not compared with any other."""
    alpha: float | None = None
    """Ordinal Krippendorff alpha of the scaled headline scores over all judges."""


class ConversationLength(NamedTuple):
    """The facts about a conversation that a panel uses."""

    conversation_id: str
    example_id: str
    words: int
    """Words of the policy's turns."""


class _PanelConversations:
    """Columns of the conversations that were judged, one entry each."""

    def __init__(self) -> None:
        self.words = array("i")
        self.tasks = array("q")
        """Hashes of their examples."""
        self.groups = array("q")
        """Hashes of their independent units."""


class _JudgeScores:
    """Scores of one judge; conversations are given by their index in the columns."""

    def __init__(self, count: int) -> None:
        self.scored_count, self.failed, self.fingerprint = 0, 0, ""
        self.rewards = array("d", [math.nan]) * count
        """Reward of every conversation, nan without one."""
        self.scores: dict[str, tuple[array[int], array[float]]] = {}
        """By metric: indices and scores."""
        self.constants: list[tuple[int, Mapping[str, float], Mapping[str, Any]]] = []
        """(index, scores, details) of verdicts with the scores of constant answers."""

    def add_verdict(self, index: int, verdict: Verdict | VerdictRow) -> None:
        self.fingerprint, scores = verdict.fingerprint, verdict.scores
        if verdict.scored:
            self.scored_count += 1
            self.rewards[index] = math.nan if verdict.reward is None else verdict.reward
            if "constant" in scores:
                self.constants.append((index, scores, verdict.details))
        else:
            self.failed += 1
        for name, score in scores.items():
            if name not in self.scores:
                self.scores[name] = array("i"), array("d")
            places, values = self.scores[name]
            places.append(index)
            values.append(score)

    def score_column(self, metric: str) -> array[float]:
        """Return the score of every conversation, nan without one."""
        column = array("d", [math.nan]) * len(self.rewards)
        for index, score in zip(*self.scores.get(metric, ((), ())), strict=True):
            column[index] = score
        return column


def summarise_panel(
    talks: Iterable[ConversationLength],
    verdicts: Iterable[Verdict | VerdictRow],
    metric: str = "overall",
    groups: Callable[[str], str] = lambda example_id: example_id,
    specs: Mapping[str, JudgeSpec] | None = None,
    beside: str | None = None,
) -> Panel:
    """Return the statistics of a run's verdicts, one of each (conversation, judge); those on other
    conversations than `talks`, the completed ones, are ignored.

    `groups` returns an example's independent unit; by default each example is its own. `specs` has
    each judge's spec by fingerprint, for its headline metric and scale; without a spec the headline
    is `metric`, unscaled. Judges of groups (`per: group`) are compared with no other; with `beside`
    the rest are compared with this judge alone.
    """
    ids, units = Hashes(), _PanelConversations()
    for talk in talks:
        ids.add(talk.conversation_id)
        units.words.append(talk.words)
        units.tasks.append(hash(talk.example_id))
        units.groups.append(hash(groups(talk.example_id)))
    places = NameOrdinals(ids)
    by_judge: dict[str, _JudgeScores] = {}
    for verdict in verdicts:
        index = places.ordinal_of(verdict.conversation_id)
        if index is not None:
            if verdict.judge not in by_judge:
                by_judge[verdict.judge] = _JudgeScores(len(units.words))
            by_judge[verdict.judge].add_verdict(index, verdict)
    means: list[JudgeMeans] = []
    headline: dict[str, array[float]] = {}
    for name, judge in by_judge.items():
        spec = (specs or {}).get(judge.fingerprint)
        head = judge.score_column(spec.headline_metric if spec else metric)
        means.append(_judge_means(name, judge, units, head))
        if not (spec and spec.is_relative):
            headline[name] = _scaled_headline(head, spec)
    if beside is None:
        couples = list(combinations(islice(headline, MOST_PAIRED), 2))
    else:
        couples = [(name, beside) for name in headline if beside in headline and name != beside]
    return Panel(
        metric,
        tuple(means),
        tuple(_pair_agreement(headline, units.groups, *two) for two in couples),
        0 if beside else max(0, len(headline) - MOST_PAIRED),
        krippendorff_alpha(list(headline.values())) if len(headline) > 1 else None,
    )


def _scaled_headline(head: array[float], spec: JudgeSpec | None) -> array[float]:
    """Return a judge's headline scores, scaled to 0 to 1."""
    low, high = spec.score_limits(spec.headline_metric) if spec else (0.0, 1.0)
    return array("d", ((value - low) / (high - low) for value in head))


def _judge_means(
    judge_name: str, judge: _JudgeScores, units: _PanelConversations, head: array[float]
) -> JudgeMeans:
    """Return a judge's means; `head` are its headline scores."""
    means = {name: math.fsum(scores) / len(scores) for name, (_, scores) in judge.scores.items()}
    rewards = zip(units.groups, judge.rewards, strict=True)
    scored = array("d", (score for score in head if score == score))
    words = (n for score, n in zip(head, units.words, strict=True) if score == score)
    return JudgeMeans(
        judge=judge_name,
        scored=judge.scored_count,
        failed=judge.failed,
        means=means,
        reward=estimate_mean((unit, reward) for unit, reward in rewards if reward == reward),
        length=spearman(scored, array("i", words)),
        constant=constant_answer(
            (str(units.tasks[index]), scores, details) for index, scores, details in judge.constants
        ),
    )


def _pair_agreement(
    scores: Mapping[str, array[float]], groups: array[int], first: str, second: str
) -> JudgeAgreement:
    first_scores, second_scores = scores[first], scores[second]
    both = array("q", (at for at, n in enumerate(map(sub, first_scores, second_scores)) if n == n))
    return judge_agreement(
        (first, second),
        array("q", map(groups.__getitem__, both)),
        array("d", map(first_scores.__getitem__, both)),
        array("d", map(second_scores.__getitem__, both)),
    )
