"""Rewards to weights (Mukherjee et al. 2025, section 3): one rule, of which learners are settings.

A group is the conversations about one question. From its rewards r to advantages A, to weights:

    rewards 0, 0, 1     refit  (center: false, scale: false)   0, 0, 1                equation (5)
                        swift  (r - mean) / std, ddof 1        -0.577, -0.577, 1.155  equation (9)
                        star-gate  (keep: best, weight: one)   -, -, 1                section 3.1
                        a-lol  (scale: false, keep: positive)  -, -, 0.667
                        awr  (scale: false, temperature: 0.5)  0.513, 0.513, 3.794

`-` leaves a conversation out.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

from convbench.errors import TrainError
from convbench.learn.select import Logged, Selection
from convbench.schema.recipe import TieRule, Weighting
from convbench.store.notes import turn_advantages
from convbench.views import own_turns

Item = TypeVar("Item")
Weight = float | None
"""A weight; None leaves a conversation or a turn out."""


@dataclass(frozen=True)
class Ties:
    """Counts of tasks with several equal best (or worst) conversations where one was needed."""

    rule: TieRule
    tied: int
    tasks: int

    def line(self) -> str:
        """Return a line: how many tasks were tied, and the rule for them."""
        return f"tied questions: {self.tied} of {self.tasks} (ties: {self.rule})"


@dataclass(frozen=True)
class Weighted:
    """Conversations with the weight of each of the policy's own turns, in order."""

    selection: Selection
    items: Sequence[tuple[Logged, tuple[Weight, ...]]]
    left_out: dict[str, int] = field(default_factory=dict)
    """Counts of conversations, or turns, without a weight, by reason."""
    flat_tasks: float = 0.0
    """Share of tasks whose rewards do not differ."""
    ties: Ties | None = None

    def of_conversations(self) -> list[tuple[Logged, float]]:
        """Return each conversation with its weight, of weighted turns the mean."""
        return [(item, fmean(w for w in weights if w is not None)) for item, weights in self.items]


def weigh(selection: Selection, weighting: Weighting, seed: int = 0) -> Weighted:
    """Return the conversations, or their turns, with the weights that `weighting` defines.

    Turns are compared with the turns of the same position in the group. `seed` draws among ties.
    Raise TrainError if no reward can be weighed: none is left, all weights are 0, a weight would be
    a negative reward, or turns have none.
    """
    left_out: Counter[str] = Counter()
    if weighting.reward == "advantage":
        selection = _with_credit(selection, left_out)
    whole = weighting.reward == "conversation"
    groups = {"": list(selection.logged)} if weighting.over == "all" else selection.by_task()
    _check_groups(groups.values(), weighting)
    rewards = {item.id: (item.reward,) if whole else item.turns for item in selection.logged}
    weights: dict[str, list[Weight]] = {name: [None] * len(own) for name, own in rewards.items()}
    for task, group in groups.items():
        for t in range(max(len(rewards[item.id]) for item in group)):
            names = [item.id for item in group if len(rewards[item.id]) > t]
            given = group_weights([rewards[name][t] for name in names], weighting, seed, task)
            for name, weight in zip(names, given, strict=True):
                weights[name][t] = weight
    items: list[tuple[Logged, tuple[Weight, ...]]] = []
    for item in selection.logged:
        own = tuple(weights[item.id])
        unknown = own.count(None)
        left_out["weighted out" if whole else "turns weighted out"] += unknown
        if unknown < len(own):
            items.append((item, own * _turn_count(item) if whole else own))
    if not items:
        raise TrainError("no conversation is left after weighting; check `weighting`")
    if not any(weight for _, of_turns in items for weight in of_turns):
        raise TrainError(
            "all weights are 0: the rewards within every task are equal; expected some to differ; "
            "build with more samples or a higher temperature"
        )
    tasks = selection.by_task().values()
    flat = sum(len(g) > 1 and len({(i.reward, i.turns) for i in g}) == 1 for g in tasks)
    ties = _count_ties(groups.values(), weighting) if weighting.keep == "best" else None
    return Weighted(selection, items, dict(+left_out), flat / len(tasks), ties)


def group_weights(rewards: Sequence[float], weighting: Weighting, *key: object) -> list[Weight]:
    """Return the weights of one group's rewards, in order; `key` seeds the draw among equals.

    A group of one has no standard deviation and is left out with `scale`. Raise TrainError for an
    exponential weight too large for a float.
    """
    if weighting.scale and len(rewards) < 2:
        return [None] * len(rewards)
    advantages = _advantages(rewards, weighting)
    kept = [weighting.threshold is None or r >= weighting.threshold for r in rewards]
    if weighting.keep == "positive":
        kept = [each and a > 0 for each, a in zip(kept, advantages, strict=True)]
    if weighting.keep == "best":
        best = break_ties(equal_indices(rewards, max(rewards)), weighting.ties, *key, "best")
        kept = [each and index in best for index, each in enumerate(kept)]
    return [
        _weight_of(advantage, weighting) if each else None
        for advantage, each in zip(advantages, kept, strict=True)
    ]


def equal_indices(rewards: Sequence[float], value: float) -> list[int]:
    """Return the indices of the rewards that equal `value` up to rounding."""
    return [i for i, r in enumerate(rewards) if math.isclose(r, value, rel_tol=1e-9, abs_tol=1e-12)]


def break_ties(tied: Sequence[Item], rule: TieRule, *key: object) -> list[Item]:
    """Return those of the tied items that are taken: a single one, or what the rule says.

    `random` draws by `key` (seed, task, and "best" or "worst"), so that the draw of one task does
    not depend on other tasks.
    """
    if len(tied) < 2 or rule == "all":
        return list(tied)
    if rule == "drop":
        return []
    return [random.Random("/".join(map(str, ("ties", *key)))).choice(tied)]


def round_weights(weights: Sequence[float], scale: float, seed: int) -> list[int]:
    """Return how often each conversation is repeated, by randomised rounding (end of section 3.2).

    floor(s*w) or ceil(s*w) times, with mean s*w exactly; for services that take an SFT file and
    no weights. Raises TrainError for a negative weight: nothing can be repeated -1 times.
    """
    if any(weight < 0 for weight in weights):
        raise TrainError(
            f"found the weight {min(weights):g}; expected none below 0: repeating cannot express "
            "negative weights; use --recipe refit"
        )
    stream = random.Random(seed)
    return [
        math.floor(scale * weight) + (stream.random() < scale * weight - math.floor(scale * weight))
        for weight in weights
    ]


def _advantages(rewards: Sequence[float], weighting: Weighting) -> list[float]:
    mean = fmean(rewards)
    advantages = [reward - mean * weighting.center for reward in rewards]
    if not weighting.scale:
        return advantages
    std = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    if std <= 1e-12 * max(1.0, abs(mean)):
        return [0.0] * len(rewards)
    return [advantage / std for advantage in advantages]


def _weight_of(advantage: float, weighting: Weighting) -> float:
    weight = 1.0 if weighting.weight == "one" else advantage
    if weighting.weight == "advantage" and weighting.temperature is not None:
        power = advantage / weighting.temperature
        try:
            weight = math.exp(power)
        except OverflowError:
            if weighting.clip is None:
                raise TrainError(
                    f"weighting.temperature: found {weighting.temperature:g}, with which a weight "
                    f"is exp({power:.4g}); expected a higher one, or weighting.clip"
                ) from None
            weight = weighting.clip
    return weight if weighting.clip is None else max(-weighting.clip, min(weighting.clip, weight))


def _turn_count(item: Logged) -> int:
    return len(own_turns(item.protocol, item.conversation))


def _check_groups(groups: Any, weighting: Weighting) -> None:
    """Raise TrainError for groups that cannot be weighed as they are."""
    groups = list(groups)
    if weighting.scale and all(len(group) < 2 for group in groups):
        raise TrainError(
            "found one judged conversation per task; expected at least 2 to standardise rewards; "
            "build with --samples 3, or train refit"
        )
    items = [item for group in groups for item in group]
    if weighting.reward == "turn":
        for item in items:
            if len(item.turns) != _turn_count(item):
                raise TrainError(
                    f"weighting.reward: turn: found rewards of {len(item.turns)} turns in "
                    f"conversation {item.id}, which has {_turn_count(item)}; expected "
                    "a judge that scores turns; judge with rubric-turns@MODEL, or with --set "
                    "judge.per=turn"
                )
    plain = weighting.weight == "advantage" and weighting.temperature is None
    if plain and not weighting.center and weighting.reward != "advantage":
        values = [r for i in items for r in (i.turns if weighting.reward == "turn" else [i.reward])]
        if min(values) < 0:
            raise TrainError(
                f"found the reward {min(values):g}, which would be a weight; expected none below 0 "
                "(Lemma 1 needs non-negative rewards); use swift, or another metric"
            )


def _with_credit(selection: Selection, left_out: Counter[str]) -> Selection:
    """Return the conversations all of whose turns have credit, which becomes their turns'
    rewards; the others are counted."""
    credit = {run.manifest.id: turn_advantages(run) for run in selection.runs}
    credited = []
    for item in selection.logged:
        own = credit[item.run.manifest.id].get(item.id, {})
        turns = own_turns(item.protocol, item.conversation)
        if all(turn in own for turn in turns):
            credited.append(replace(item, turns=tuple(own[turn] for turn in turns)))
    if not credited:
        raise TrainError(
            f"{selection.runs[0].path}: weighting.reward: advantage: found no conversation all of "
            "whose turns have credit; convbench train sweet writes it"
        )
    left_out["without credit of every turn"] = len(selection.logged) - len(credited)
    return replace(selection, logged=credited)


def _count_ties(groups: Any, weighting: Weighting) -> Ties:
    rewards = [[item.reward for item in group] for group in groups]
    tied = sum(len(equal_indices(group, max(group))) > 1 for group in rewards)
    return Ties(weighting.ties, tied, len(rewards))
