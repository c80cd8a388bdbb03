"""Statistics of the judges of a run: means, agreement, and the correlation of scores with length.

Reports compute the same from their frame (`convbench.reports.judges`), by the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from convbench.schema import JudgeSpec, Verdict
from convbench.stats.agreement import Agreement, agreement, krippendorff_alpha, spearman
from convbench.stats.estimates import Estimate, estimate
from convbench.store.index import VerdictRow

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


@dataclass(frozen=True, slots=True)
class Panel:
    """Statistics of all judges of a run."""

    metric: str
    """The common headline metric of all judges; `overall` if they have several."""
    judges: tuple[JudgeMeans, ...]
    pairs: tuple[tuple[str, str, Agreement], ...] = ()
    """(first judge, second judge, agreement of their headline scores, each scaled to 0 to 1)."""
    unpaired: int = 0
    """Judges beyond MOST_PAIRED, which are not compared with any other."""
    alpha: float | None = None
    """Krippendorff's alpha (interval) of the scaled headline scores over all judges."""


class ConversationLength(NamedTuple):
    """The facts about a conversation that a panel uses."""

    conversation_id: str
    example_id: str
    words: int
    """Words of the policy's turns."""


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
    listed = list(talks)
    place = {talk.conversation_id: number for number, talk in enumerate(listed)}
    units = [groups(talk.example_id) for talk in listed]
    words = [talk.words for talk in listed]
    by_judge: dict[str, dict[int, Verdict | VerdictRow]] = {}
    for verdict in verdicts:
        if verdict.conversation_id in place:
            own = by_judge.setdefault(verdict.judge, {})
            own[place[verdict.conversation_id]] = verdict
    means, headline = [], {}
    for name, own in by_judge.items():
        spec = (specs or {}).get([*own.values()][-1].fingerprint)
        top = spec.headline_metric if spec else metric
        heads = [_score(own.get(number), top) for number in range(len(listed))]
        means.append(_judge_means(name, own, units, words, heads))
        if not (spec and spec.is_relative):
            low, high = spec.score_limits(top) if spec else (0.0, 1.0)
            headline[name] = [(score - low) / (high - low) for score in heads]
    if beside is None:
        couples = list(combinations(list(headline)[:MOST_PAIRED], 2))
    else:
        couples = [(name, beside) for name in headline if beside in headline and name != beside]
    agreed = ((*two, agreement(units, headline[two[0]], headline[two[1]])) for two in couples)
    return Panel(
        metric,
        tuple(means),
        tuple((a, b, found) for a, b, found in agreed if found is not None),
        0 if beside else max(0, len(headline) - MOST_PAIRED),
        krippendorff_alpha(list(zip(*headline.values(), strict=True)))
        if len(headline) > 1
        else None,
    )


def _score(verdict: Verdict | VerdictRow | None, metric: str) -> float:
    """Return a score; nan without one."""
    return math.nan if verdict is None else verdict.scores.get(metric, math.nan)


def _judge_means(
    name: str,
    own: Mapping[int, Verdict | VerdictRow],
    units: list[str],
    words: list[int],
    heads: list[float],
) -> JudgeMeans:
    scores: dict[str, list[float]] = {}
    for verdict in own.values():
        for metric, score in verdict.scores.items():
            scores.setdefault(metric, []).append(score)
    rewarded = [(n, v.reward) for n, v in own.items() if v.scored and v.reward is not None]
    known = [number for number, score in enumerate(heads) if score == score]
    return JudgeMeans(
        name,
        sum(verdict.scored for verdict in own.values()),
        sum(not verdict.scored for verdict in own.values()),
        {metric: math.fsum(some) / len(some) for metric, some in scores.items()},
        estimate([units[n] for n, _ in rewarded], [reward for _, reward in rewarded]),
        spearman([heads[n] for n in known], [words[n] for n in known]) if known else None,
    )
