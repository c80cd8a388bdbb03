"""Rewards to weights: pure functions (Mukherjee et al. 2025, section 3)."""

from __future__ import annotations

import math
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

from convbench.errors import TrainError
from convbench.learn.logged import Logged
from convbench.learn.select import Selection
from convbench.schema.recipe import TieRule, Weighting
from convbench.store.credit import turn_advantages
from convbench.views import policy_turns

STEEPEST = 700.0
"""Largest A / temperature whose exponential is a finite float."""


def shaped(rewards: Sequence[float], by: Weighting, *key: object) -> list[float | None]:
    """Return the weights of one group's rewards; None leaves a conversation out. `key` seeds the
    draw among equal rewards with `keep: best`.

    A group of one is left out with `scale` or `leave_one_out`: it has no standard deviation, and no
    mean of others.
    """
    if len(rewards) < 2 and (by.scale or (by.center and by.leave_one_out)):
        return [None] * len(rewards)
    advantages = _advantages(ranks(rewards) if by.rank else list(rewards), by)
    weights = [_weight(advantage, by) for advantage in advantages]
    kept = _kept(rewards, advantages, by, *key)
    return [weight if on else None for weight, on in zip(weights, kept, strict=True)]


def ranks(rewards: Sequence[float]) -> list[float]:
    """Return each reward's rank from 0 (lowest) to 1; equal ones share the mean of their ranks."""
    most = max(len(rewards) - 1, 1)
    return [
        (sum(other < value for other in rewards) + (len(equals(rewards, value)) - 1) / 2) / most
        for value in rewards
    ]


def _advantages(values: Sequence[float], by: Weighting) -> list[float]:
    n, mean = len(values), fmean(values)
    if by.center and by.leave_one_out:
        apart = [value - (n * mean - value) / (n - 1) for value in values]
    else:
        apart = [value - mean * by.center for value in values]
    if not by.scale:
        return apart
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    if std <= 1e-12 * max(1.0, abs(mean)):
        return [0.0] * n
    return [value / std for value in apart]


def _weight(advantage: float, by: Weighting) -> float:
    weight = 1.0 if by.shape == "one" else advantage
    if by.shape == "exponential":
        power = advantage / by.temperature
        if power > STEEPEST and by.clip is None:
            raise TrainError(
                f"weighting.temperature: found {by.temperature:g}, with which a weight is "
                f"exp({power:.4g}); expected a higher one, or weighting.clip"
            )
        weight = math.exp(min(power, STEEPEST))
    return weight if by.clip is None else max(-by.clip, min(by.clip, weight))


def _kept(
    rewards: Sequence[float], advantages: Sequence[float], by: Weighting, *key: object
) -> list[bool]:
    least = -math.inf if by.threshold is None else by.threshold
    kept = [reward >= least for reward in rewards]
    if by.keep == "positive":
        return [on and advantage > 0 for on, advantage in zip(kept, advantages, strict=True)]
    if by.keep == "best":
        winners = settle(equals(rewards, max(rewards)), by.ties, *key, "best")
        return [on and place in winners for place, on in enumerate(kept)]
    return kept


T = TypeVar("T")
SAID = {
    "random": "one of the equals is drawn",
    "all": "all of the equals are taken",
    "drop": "these questions are left out",
}


@dataclass(frozen=True, slots=True)
class Ties:
    """Counts of tasks with several equal best (or worst) conversations where one was needed."""

    rule: TieRule
    tied: int
    """Tasks with such ties."""
    tasks: int
    """All tasks that were considered."""

    def describe(self) -> Iterator[str]:
        """Yield one line: how many tasks were tied, and how the ties were treated."""
        yield f"tied questions: {self.tied} of {self.tasks} (ties: {self.rule}, {SAID[self.rule]})"

    def record(self) -> dict[str, Any]:
        """Return the counts as `training.json` holds them."""
        return {"rule": self.rule, "tied": self.tied, "tasks": self.tasks}


def equals(rewards: Sequence[float], value: float) -> list[int]:
    """Return the indices of the rewards that equal `value` up to rounding."""
    return [i for i, r in enumerate(rewards) if math.isclose(r, value, rel_tol=1e-9, abs_tol=1e-12)]


def settle(tied: Sequence[T], rule: TieRule, *key: object) -> list[T]:
    """Return those of the tied items that are taken: a single one, or what the rule says.

    `random` draws by `key` (seed, task, and "best" or "worst"), so that the draw of one task does
    not depend on other tasks.
    """
    if len(tied) < 2 or rule == "all":
        return list(tied)
    if rule == "drop":
        return []
    return [random.Random("/".join(map(str, ("ties", *key)))).choice(tied)]


COMPOSED = ("credit", "over", "leave_one_out", "rank", "shape", "temperature", "keep")
"""Fields of `weighting` that only trainer `weighted` uses."""
Weigh = Callable[[Sequence[float]], list[float | None]]
"""Maps the rewards of a group's conversations to weights; None leaves a conversation out."""


@dataclass(frozen=True)
class Weighted:
    """Conversations with their weights, and counts of what was left out, by reason."""

    selection: Selection
    items: Sequence[tuple[Logged, float]]
    skipped: dict[str, int] = field(default_factory=dict)
    flat_tasks: float = 0.0
    """Share of tasks whose rewards do not differ (standard deviation 0)."""
    by_turn: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """By conversation the weight of each of the policy's turns, if turns are weighted; None leaves
    a turn out. The conversation's weight is their mean."""
    ties: Ties | None = None
    """Tasks with several best conversations, for learners that take the best one."""
    plain: frozenset[str] = frozenset()
    """Ids of conversations that have no reward and are learnt by their likelihood."""


def reward(rewards: Sequence[float]) -> list[float | None]:
    """Return ReFit's weights, the rewards themselves (equation (5)). Raises TrainError for a
    negative reward: Lemma 1 holds for rewards >= 0 only."""
    if any(value < 0 for value in rewards):
        raise TrainError(
            f"refit: found the reward {min(rewards):g}; expected none below 0 (Lemma 1 needs "
            "non-negative rewards); use swift, or another metric"
        )
    return list(rewards)


def standardized(
    rewards: Sequence[float],
    *,
    center: bool = True,
    scale: bool = True,
    clip: float | None = None,
) -> list[float | None]:
    """Return SWiFt's weights: (r - mean) / std over one task's conversations, ddof 1 (section 3.3).

    With a standard deviation of 0 the weights are 0. A task with fewer than 2 rewards is left out.
    """
    if len(rewards) < 2:
        return [None] * len(rewards)
    mean = fmean(rewards)
    std = math.sqrt(sum((value - mean) ** 2 for value in rewards) / (len(rewards) - 1))
    if std <= 1e-12 * max(1.0, abs(mean)):
        return [0.0] * len(rewards)
    weights = [(value - mean * center) / (std if scale else 1.0) for value in rewards]
    return list(weights) if clip is None else [max(-clip, min(clip, w)) for w in weights]


def best(rewards: Sequence[float], rule: TieRule = "random", *key: object) -> list[float | None]:
    """Return STaR-GATE's weights: 1 for the task's best one (ties by the rule), else None."""
    winners = settle(equals(rewards, max(rewards)), rule, *key, "best")
    return [1.0 if i in winners else None for i in range(len(rewards))]


def above(rewards: Sequence[float], threshold: float) -> list[float | None]:
    """Return STaR-GATE's weights by threshold: 1 for a reward of at least that, else None."""
    return [1.0 if value >= threshold else None for value in rewards]


def weigh(selection: Selection, rule: Weigh) -> Weighted:
    """Return the conversations weighted task by task with a rule."""
    return _weigh(selection, lambda _, rewards: rule(rewards))


def _weigh(
    selection: Selection,
    rule: Callable[[str, Sequence[float]], list[float | None]],
    *,
    whole: bool = False,
) -> Weighted:
    """Return the conversations weighted with a rule of (task name, rewards), task by task or, with
    the flag, all at once (their task name is ""). Raises TrainError if none is left."""
    items: list[tuple[Logged, float]] = []
    skipped: Counter[str] = Counter()
    tasks = selection.tasks()
    flat = sum(
        len(some) > 1 and len({item.reward for item in some}) == 1 for some in tasks.values()
    )
    groups: Mapping[str, Sequence[Logged]] = {"": selection.logged} if whole else tasks
    for task, logged in groups.items():
        rewards = [item.reward for item in logged]
        for item, weight in zip(logged, rule(task, rewards), strict=True):
            if weight is None:
                skipped["weighted out"] += 1
            else:
                items.append((item, weight))
    if not items:
        raise TrainError("no conversation is left after weighting; look at `weighting`")
    return Weighted(selection, items, dict(skipped), flat / len(tasks))


def composed(selection: Selection, by: Weighting, seed: int = 0) -> Weighted:
    """Return the weights that the fields of `weighting` define; `seed` draws among ties. With
    `over: batch` they are the bare rewards, which the training turns into weights batch by batch.
    """
    selection, bare = credited(selection, by) if by.reward == "advantage" else (selection, {})
    found = _composed(selection, by, seed)
    return replace(found, skipped=bare | found.skipped)


def credited(selection: Selection, by: Weighting) -> tuple[Selection, dict[str, int]]:
    """Return (the conversations with credit for all turns, which becomes their turns' rewards;
    count of the others). Raises TrainError if there is no such conversation."""
    runs = [part.run for part in selection.parts] or [selection.run]
    there = {run.manifest.id: turn_advantages(run, by.credit) for run in runs}
    found: list[Logged] = []
    for item in selection.logged:
        manifest = selection.run_of(item).manifest
        own = there[manifest.id].get(item.conversation_id, {})
        turns = policy_turns(manifest.protocol, item.conversation)
        if all(turn in own for turn in turns):
            found.append(replace(item, turns=tuple(own[turn] for turn in turns)))
    if not found:
        raise TrainError(
            f"{selection.run.path}: weighting.reward: advantage: found no conversation all of "
            "whose turns have credit; give it with convbench credit"
        )
    bare = len(selection.logged) - len(found)
    some = replace(selection, logged=found)
    return some, ({"without credit of every turn": bare} if bare else {})


def _composed(selection: Selection, by: Weighting, seed: int) -> Weighted:
    turns = by.reward != "conversation"
    if by.over == "batch":
        keep: Weigh = list
        return weigh_turns(selection, keep) if turns else weigh(selection, keep)
    if turns:
        found = weigh_turns(selection, lambda some: shaped(some, by, seed), whole=by.over == "all")
    else:
        found = _weigh(
            selection, lambda group, some: shaped(some, by, seed, group), whole=by.over == "all"
        )
    if all(weight == 0 for weight in _all_of(found)):
        raise TrainError(
            f"weighting: all {len(_all_of(found))} weights are 0: the rewards within every "
            "group are equal; expected some to differ; build with more samples or a higher "
            "temperature"
        )
    if by.keep != "best" or by.over != "task":
        return found
    rewards = [[item.reward for item in some] for some in selection.tasks().values()]
    tied = sum(len(equals(some, max(some))) > 1 for some in rewards)
    return replace(found, ties=Ties(by.ties, tied, len(rewards)))


def plain(name: str, weighting: Weighting) -> None:
    """Raise TrainError for fields of `weighting` that this learner does not use."""
    default = Weighting()
    if weighting.reward == "advantage":
        raise TrainError(
            f"weighting.reward: found advantage, which trainer {name} does not go by; expected "
            "--set trainer=weighted beside it"
        )
    for field_name in COMPOSED:
        found = getattr(weighting, field_name)
        if found != getattr(default, field_name):
            raise TrainError(
                f"weighting.{field_name}: found {found}, which trainer {name} does not go by; "
                "expected --set trainer=weighted beside it"
            )


def refit(selection: Selection, weighting: Weighting) -> Weighted:
    """Return the conversations, or their turns, with ReFit's weights."""
    plain("refit", weighting)
    if weighting.reward == "turn":
        return weigh_turns(selection, reward)
    if len(selection.logged) > 1 and len({item.reward for item in selection.logged}) == 1:
        raise TrainError(
            "refit: all rewards of conversations are equal and only those of their turns differ; "
            "expected weighting.reward: turn"
        )
    return weigh(selection, reward)


def swift(selection: Selection, weighting: Weighting) -> Weighted:
    """Return the conversations, or their turns, with SWiFt's weights. Raises TrainError if every
    task has one conversation, which cannot be standardised, or if all weights are 0."""
    plain("swift", weighting)
    sizes = array("q", map(len, selection.tasks().values()))
    small = sum(size < 2 for size in sizes)
    if small == len(sizes):
        raise TrainError(
            "swift: found one judged conversation a task; expected at least 2 to standardise "
            "rewards; build with --samples 3, or train refit"
        )

    def rule(rewards: Sequence[float]) -> list[float | None]:
        return standardized(
            rewards, center=weighting.center, scale=weighting.scale, clip=weighting.clip
        )

    weighted = (
        weigh_turns(selection, rule) if weighting.reward == "turn" else weigh(selection, rule)
    )
    skipped = {"in a task with fewer than 2 verdicts": small} if small else {}
    if all(weight == 0 for weight in _all_of(weighted)):
        raise TrainError(
            "swift: within every task all rewards are equal, so all weights are 0; expected some "
            "to differ; build with more samples or a higher temperature"
        )
    return replace(weighted, skipped=skipped | (weighted.skipped if weighted.by_turn else {}))


def _all_of(weighted: Weighted) -> Sequence[float]:
    """Return all weights: those of turns if turns are weighted, else those of conversations."""
    turns = [w for some in weighted.by_turn.values() for w in some if w is not None]
    return turns or [weight for _, weight in weighted.items]


def weigh_turns(selection: Selection, rule: Weigh, *, whole: bool = False) -> Weighted:
    """Return the conversations with weighted turns: the rule gets the rewards of the t-th turn of
    one task's conversations (with the flag, of all tasks'), so that a turn is compared with turns
    of its position."""
    by_turn: dict[str, list[float | None]] = {}
    tasks = selection.tasks()
    flat = sum(len(some) > 1 and len(set(map(_rewards, some))) == 1 for some in tasks.values())
    for logged in [selection.logged] if whole else tasks.values():
        rewards = [_rewards(item) for item in logged]
        for item in logged:
            by_turn[item.conversation_id] = [None] * len(item.turns)
        for t in range(max(map(len, rewards))):
            there = [item for item in logged if len(item.turns) > t]
            found = rule([item.turns[t] for item in there])
            for item, weight in zip(there, found, strict=True):
                by_turn[item.conversation_id][t] = weight
    kept, items = Counter[str](), list[tuple[Logged, float]]()
    for item in selection.logged:
        known = [w for w in by_turn[item.conversation_id] if w is not None]
        kept["turns weighted out"] += len(item.turns) - len(known)
        if known:
            items.append((item, fmean(known)))
    if not items:
        raise TrainError("no turn is left after weighting; look at `weighting`")
    turns = {name: tuple(found) for name, found in by_turn.items()}
    return Weighted(selection, items, dict(+kept), flat / len(tasks), by_turn=turns)


def _rewards(item: Logged) -> tuple[float, ...]:
    """Return the rewards of a conversation's turns. Raises TrainError if it has none."""
    if not item.turns:
        raise TrainError(
            f"weighting.reward: turn: found no rewards of turns in conversation "
            f"{item.conversation_id}; expected a judge that scores turns; judge with "
            "rubric-turns@MODEL, or with --set judge.per=turn"
        )
    return item.turns


def star_gate(selection: Selection, weighting: Weighting, seed: int = 0) -> Weighted:
    """Return the conversations with STaR-GATE's weights; `seed` draws among a task's ties."""
    plain("star_gate", weighting)
    threshold, rule = weighting.threshold, weighting.ties
    if weighting.reward == "turn":
        raise TrainError(
            "weighting.reward: turn: this recipe picks whole conversations; expected conversation; "
            "turns are weighed by refit and swift"
        )
    if threshold is not None:
        return weigh(selection, lambda rewards: above(rewards, threshold))
    tasks = selection.tasks().values()
    rewards = ([item.reward for item in logged] for logged in tasks)
    tied = sum(len(equals(found, max(found))) > 1 for found in rewards)
    weighted = _weigh(selection, lambda task, found: best(found, rule, seed, task))
    return replace(weighted, ties=Ties(rule, tied, len(tasks)))


def rounded(weights: Sequence[float], scale: float, seed: int) -> list[int]:
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
