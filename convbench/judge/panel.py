"""What a panel of judges says together: means, agreement, and whether length pays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from convbench.answers import grade_texts
from convbench.schema import Conversation, JudgeSpec, ProtocolSpec, Verdict, text_of
from convbench.stats.agreement import Agreement, agreement, alpha, spearman
from convbench.stats.constant import ConstantAnswer, constant_answer
from convbench.stats.estimate import Estimate, estimate
from convbench.store.keys import Hashes, Ordinals
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
class Panel:
    """All judges of a run. Correlations and agreement are None where they cannot be told."""

    metric: str
    """The headline metric of all judges; `overall` where they have several."""
    judges: tuple[JudgeMeans, ...]
    pairs: tuple[Agreement, ...] = ()
    """How every two agree by their headlines, each brought to 0 to 1 by its judge's scale."""
    alpha: float | None = None
    """Ordinal Krippendorff alpha of these over all judges."""


class _Column:
    """Numbers of some conversations, by their places."""

    def __init__(self) -> None:
        self.at, self.values = array("q"), array("d")

    def add(self, at: int, value: float) -> None:
        self.at.append(at)
        self.values.append(value)

    def aligned(self, count: int) -> array[float]:
        """Return a number for each of `count` conversations, nan where there is none."""
        found = array("d", [math.nan]) * count
        for at, value in zip(self.at, self.values, strict=True):
            found[at] = value
        return found


@dataclass
class _Given:
    """What one judge gave."""

    good: int = 0
    failed: int = 0
    fingerprint: str = ""
    scores: dict[str, _Column] = field(default_factory=dict)
    rewards: _Column = field(default_factory=_Column)
    constants: list[tuple[str, Mapping[str, float], Mapping[str, Any]]] = field(
        default_factory=list
    )
    """Of verdicts that say what constant answers would score: by task their scores and details."""

    def add(self, at: int, task: str, verdict: Verdict) -> None:
        self.fingerprint = verdict.fingerprint
        if verdict.failure is None:
            self.good += 1
            if verdict.reward is not None:
                self.rewards.add(at, verdict.reward)
            if "constant" in verdict.scores:
                self.constants.append((task, verdict.scores, verdict.details))
        else:
            self.failed += 1
        for name, score in verdict.scores.items():
            self.scores.setdefault(name, _Column()).add(at, score)


def panel(
    protocol: ProtocolSpec,
    conversations: Iterable[Conversation],
    verdicts: Iterable[Verdict],
    metric: str = "overall",
    groups: Callable[[str], str] = lambda example_id: example_id,
    specs: Mapping[str, JudgeSpec] | None = None,
) -> Panel:
    """Return the statistics of a run's verdicts, the newest of each (conversation, judge).

    Conversations that failed have nothing to be judged and do not count. `groups` tells each
    example's independent unit; without it each is its own. `specs` tells by fingerprint what each
    judge's headline is and its scale; without one it is `metric`, as it stands. Memory holds some
    numbers of each.
    """
    ids, words, tasks, units = Hashes(), array("q"), array("q"), array("q")
    for talk in conversations:
        if talk.failure is None:
            ids.add(talk.conversation_id)
            words.append(_words(protocol, talk))
            tasks.append(hash(talk.example_id))
            units.append(hash(groups(talk.example_id)))
    places = Ordinals(ids)
    by_judge: dict[str, _Given] = {}
    for verdict in verdicts:
        at = places.of(verdict.conversation_id)
        if at is not None:
            by_judge.setdefault(verdict.judge, _Given()).add(at, str(tasks[at]), verdict)
    known = {judge: (specs or {}).get(given.fingerprint) for judge, given in by_judge.items()}
    heads = {judge: spec.headline if spec else metric for judge, spec in known.items()}
    headline = {
        judge: _share(given.scores.get(heads[judge], _Column()).aligned(len(words)), known[judge])
        for judge, given in by_judge.items()
        if not ((spec := known[judge]) and spec.relative)
    }
    return Panel(
        metric,
        tuple(
            _means(judge, given, words, units, heads[judge]) for judge, given in by_judge.items()
        ),
        tuple(_pair(headline, units, *two) for two in combinations(headline, 2)),
        alpha(list(headline.values())) if len(headline) > 1 else None,
    )


def _share(column: array[float], spec: JudgeSpec | None) -> array[float]:
    """Return a judge's headline brought to 0 to 1 by its scale."""
    low, high = spec.limits(spec.headline) if spec else (0.0, 1.0)
    return array("d", ((value - low) / (high - low) for value in column))


def _words(protocol: ProtocolSpec, conversation: Conversation) -> int:
    turns = conversation.turns
    said = [text_of(turns[i].content) for i in policy_turns(protocol, conversation)]
    return grade_texts(said, (), None).words


def _means(
    judge: str, given: _Given, words: array[int], units: array[int], metric: str
) -> JudgeMeans:
    means = {name: _mean(column.values) for name, column in given.scores.items()}
    rewards = zip(given.rewards.at, given.rewards.values, strict=True)
    headline = given.scores.get(metric, _Column())
    return JudgeMeans(
        judge=judge,
        scored=given.good,
        failed=given.failed,
        means={name: mean for name, mean in means.items() if mean is not None},
        reward=estimate((str(units[at]), reward) for at, reward in rewards),
        length=spearman(headline.values, array("d", (words[at] for at in headline.at))),
        constant=constant_answer(given.constants),
    )


def _pair(
    scores: Mapping[str, array[float]], units: array[int], first: str, second: str
) -> Agreement:
    groups, one, other = array("q"), array("d"), array("d")
    for unit, a, b in zip(units, scores[first], scores[second], strict=True):
        if a == a and b == b:
            groups.append(unit)
            one.append(a)
            other.append(b)
    return agreement((first, second), groups, one, other)


def _mean(values: Sequence[float]) -> float | None:
    found = estimate(("", value) for value in values)
    return None if found is None else found.mean
