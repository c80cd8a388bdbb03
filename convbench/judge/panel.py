"""What a panel of judges says together: means, agreement, and whether length pays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from convbench.answers import grade_texts
from convbench.schema import Conversation, ProtocolSpec, Verdict, text_of
from convbench.stats.agreement import alpha, spearman, weighted_kappa
from convbench.stats.constant import ConstantAnswer, constant_answer
from convbench.stats.estimate import Estimate, estimate
from convbench.views import policy_turns


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
class Pair:
    """Two judges on the conversations that both scored, by the headline metric."""

    first: str
    second: str
    common: int
    equal: float | None
    """Share of equal scores."""
    kappa: float | None
    """Quadratically weighted kappa."""
    correlation: float | None
    """Spearman."""
    difference: float | None
    """Mean of first minus second."""


@dataclass(frozen=True, slots=True)
class Panel:
    """All judges of a run. Correlations and agreement are None where they cannot be told."""

    metric: str
    """The headline metric, `overall`."""
    judges: tuple[JudgeMeans, ...]
    pairs: tuple[Pair, ...] = ()
    alphas: Mapping[str, float | None] = field(default_factory=dict)
    """Ordinal Krippendorff alpha over all judges, by metric."""
    interval_alpha: float | None = None
    """Interval alpha of the headline metric."""


def panel(
    protocol: ProtocolSpec,
    conversations: Iterable[Conversation],
    verdicts: Iterable[Verdict],
    metric: str = "overall",
    groups: Mapping[str, str] | None = None,
) -> Panel:
    """Return the statistics of a run's verdicts, the newest of each (conversation, judge).

    Conversations that failed have nothing to be judged and do not count. `groups` is each
    example's independent unit; without it each is its own.
    """
    built = [c for c in conversations if c.failure is None]
    words = {c.conversation_id: _words(protocol, c) for c in built}
    tasks = {c.conversation_id: c.example_id for c in built}
    units = {key: (groups or {}).get(name, name) for key, name in tasks.items()}
    by_judge: dict[str, dict[str, Verdict]] = {}
    for verdict in verdicts:
        if verdict.conversation_id in words:
            by_judge.setdefault(verdict.judge, {})[verdict.conversation_id] = verdict
    metrics = dict.fromkeys(
        name for given in by_judge.values() for v in given.values() for name in v.scores
    )
    scores = {
        name: {judge: _scores(given, name) for judge, given in by_judge.items()}
        for name in (metric, *metrics)
    }
    many = len(by_judge) > 1
    return Panel(
        metric,
        tuple(
            _means(judge, given, words, tasks, units, metric) for judge, given in by_judge.items()
        ),
        tuple(_pair(scores[metric], *two) for two in combinations(by_judge, 2)),
        {name: _alpha(scores[name].values()) for name in metrics} if many else {},
        _alpha(scores[metric].values(), interval=True) if many else None,
    )


def _words(protocol: ProtocolSpec, conversation: Conversation) -> int:
    turns = conversation.turns
    said = [text_of(turns[i].content) for i in policy_turns(protocol, conversation)]
    return grade_texts(said, (), None).words


def _scores(given: Mapping[str, Verdict], metric: str) -> dict[str, float]:
    return {key: v.scores[metric] for key, v in given.items() if metric in v.scores}


def _means(
    judge: str,
    given: Mapping[str, Verdict],
    words: Mapping[str, int],
    tasks: Mapping[str, str],
    units: Mapping[str, str],
    metric: str,
) -> JudgeMeans:
    good = [verdict for verdict in given.values() if verdict.failure is None]
    names = dict.fromkeys(name for verdict in good for name in verdict.scores)
    means = {name: _mean([v.scores[name] for v in good if name in v.scores]) for name in names}
    rewards = [(units[v.conversation_id], v.reward) for v in good if v.reward is not None]
    headline = _scores(given, metric)
    return JudgeMeans(
        judge=judge,
        scored=len(good),
        failed=len(given) - len(good),
        means={name: mean for name, mean in means.items() if mean is not None},
        reward=estimate(rewards),
        length=spearman(list(headline.values()), [float(words[key]) for key in headline]),
        constant=constant_answer((tasks[v.conversation_id], v.scores, v.details) for v in good),
    )


def _pair(scores: Mapping[str, Mapping[str, float]], first: str, second: str) -> Pair:
    both = [key for key in scores[first] if key in scores[second]]
    one = [scores[first][key] for key in both]
    other = [scores[second][key] for key in both]
    apart = [a - b for a, b in zip(one, other, strict=True)]
    return Pair(
        first=first,
        second=second,
        common=len(both),
        equal=_mean([float(value == 0) for value in apart]),
        kappa=weighted_kappa(one, other),
        correlation=spearman(one, other),
        difference=_mean(apart),
    )


def _alpha(scores: Iterable[Mapping[str, float]], interval: bool = False) -> float | None:
    rows = list(scores)
    units = list(dict.fromkeys(key for row in rows for key in row))
    ratings = [[row.get(key) for key in units] for row in rows]
    return alpha(ratings, "interval" if interval else "ordinal")


def _mean(values: Sequence[float]) -> float | None:
    found = estimate(("", value) for value in values)
    return None if found is None else found.mean
