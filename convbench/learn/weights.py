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
from convbench.learn.log import LoggedConversation
from convbench.learn.select import Selection
from convbench.schema.recipe import TieRule, Weighting
from convbench.store.notes import turn_advantages
from convbench.views import policy_turns

MAX_EXPONENT = 700.0
"""Largest A / temperature whose exponential is a finite float."""


def shape_weights(
    rewards: Sequence[float], weighting: Weighting, *key: object
) -> list[float | None]:
    """Return the weights of one group's rewards, in order; None leaves a conversation out.

    `key` seeds the draw among equal rewards with `keep: best`. A group of one is left out with
    `scale` or `leave_one_out`: it has no standard deviation, and no mean of others. Raise
    TrainError for an exponential weight too large for a float.
    """
    if len(rewards) < 2 and (weighting.scale or (weighting.center and weighting.leave_one_out)):
        return [None] * len(rewards)
    advantages = _group_advantages(
        reward_ranks(rewards) if weighting.rank else list(rewards), weighting
    )
    weights = [_advantage_weight(advantage, weighting) for advantage in advantages]
    mask = _keep_mask(rewards, advantages, weighting, *key)
    return [weight if is_kept else None for weight, is_kept in zip(weights, mask, strict=True)]


def reward_ranks(rewards: Sequence[float]) -> list[float]:
    """Return each reward's rank from 0 (lowest) to 1, in order; equal ones share the mean of their
    ranks, and a single one has 0."""
    last_rank = max(len(rewards) - 1, 1)
    return [
        (sum(other < value for other in rewards) + (len(equal_indices(rewards, value)) - 1) / 2)
        / last_rank
        for value in rewards
    ]


def _group_advantages(values: Sequence[float], weighting: Weighting) -> list[float]:
    n, mean = len(values), fmean(values)
    if weighting.center and weighting.leave_one_out:
        deviations = [value - (n * mean - value) / (n - 1) for value in values]
    else:
        deviations = [value - mean * weighting.center for value in values]
    if not weighting.scale:
        return deviations
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    if std <= 1e-12 * max(1.0, abs(mean)):
        return [0.0] * n
    return [value / std for value in deviations]


def _advantage_weight(advantage: float, weighting: Weighting) -> float:
    weight = 1.0 if weighting.shape == "one" else advantage
    if weighting.shape == "exponential":
        power = advantage / weighting.temperature
        if power > MAX_EXPONENT and weighting.clip is None:
            raise TrainError(
                f"weighting.temperature: found {weighting.temperature:g}, with which a weight is "
                f"exp({power:.4g}); expected a higher one, or weighting.clip"
            )
        weight = math.exp(min(power, MAX_EXPONENT))
    return weight if weighting.clip is None else max(-weighting.clip, min(weighting.clip, weight))


def _keep_mask(
    rewards: Sequence[float], advantages: Sequence[float], weighting: Weighting, *key: object
) -> list[bool]:
    least = -math.inf if weighting.threshold is None else weighting.threshold
    mask = [reward >= least for reward in rewards]
    if weighting.keep == "positive":
        return [
            is_kept and advantage > 0 for is_kept, advantage in zip(mask, advantages, strict=True)
        ]
    if weighting.keep == "best":
        winners = break_ties(equal_indices(rewards, max(rewards)), weighting.ties, *key, "best")
        return [is_kept and index in winners for index, is_kept in enumerate(mask)]
    return mask


T = TypeVar("T")
TIE_RESULTS = {
    "random": "one of the equals is drawn",
    "all": "all of the equals are taken",
    "drop": "these questions are left out",
}


@dataclass(frozen=True, slots=True)
class TieSummary:
    """Counts of tasks with several equal best (or worst) conversations where one was needed."""

    rule: TieRule
    tied: int
    """Tasks with such ties."""
    tasks: int
    """All tasks that were considered."""

    def describe(self) -> Iterator[str]:
        """Yield one line: how many tasks were tied, and how the ties were treated."""
        rule = f"ties: {self.rule}, {TIE_RESULTS[self.rule]}"
        yield f"tied questions: {self.tied} of {self.tasks} ({rule})"

    def record(self) -> dict[str, Any]:
        """Return `rule`, `tied` and `tasks`, as `training.json` holds them."""
        return {"rule": self.rule, "tied": self.tied, "tasks": self.tasks}


def equal_indices(rewards: Sequence[float], value: float) -> list[int]:
    """Return the indices of the rewards that equal `value` up to rounding."""
    return [i for i, r in enumerate(rewards) if math.isclose(r, value, rel_tol=1e-9, abs_tol=1e-12)]


def break_ties(tied: Sequence[T], rule: TieRule, *key: object) -> list[T]:
    """Return those of the tied items that are taken: a single one, or what the rule says.

    `random` draws by `key` (seed, task, and "best" or "worst"), so that the draw of one task does
    not depend on other tasks.
    """
    if len(tied) < 2 or rule == "all":
        return list(tied)
    if rule == "drop":
        return []
    return [random.Random("/".join(map(str, ("ties", *key)))).choice(tied)]


COMPOSED_FIELDS = ("credit", "over", "leave_one_out", "rank", "shape", "temperature", "keep")
"""Fields of `weighting` that only trainer `weighted` uses."""
WeightRule = Callable[[Sequence[float]], list[float | None]]
"""Maps the rewards of a group's conversations to weights; None leaves a conversation out."""


@dataclass(frozen=True)
class Weighted:
    """Conversations with their weights, and counts of what was left out, by reason."""

    selection: Selection
    items: Sequence[tuple[LoggedConversation, float]]
    skipped: dict[str, int] = field(default_factory=dict)
    flat_tasks: float = 0.0
    """Share of tasks whose rewards do not differ (standard deviation 0)."""
    by_turn: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """By conversation the weight of each of the policy's turns, if turns are weighted; None leaves
    a turn out. The conversation's weight is their mean."""
    ties: TieSummary | None = None
    """Tasks with several best conversations, for learners that take the best one."""
    unrewarded_ids: frozenset[str] = frozenset()
    """Ids of conversations that have no reward and are learnt by their likelihood."""


def reward_weights(rewards: Sequence[float]) -> list[float | None]:
    """Return ReFit's weights, the rewards themselves (equation (5)). Raises TrainError for a
    negative reward: Lemma 1 holds for rewards >= 0 only."""
    if any(value < 0 for value in rewards):
        raise TrainError(
            f"refit: found the reward {min(rewards):g}; expected none below 0 (Lemma 1 needs "
            "non-negative rewards); use swift, or another metric"
        )
    return list(rewards)


def standardized_weights(
    rewards: Sequence[float],
    *,
    center: bool = True,
    scale: bool = True,
    clip: float | None = None,
) -> list[float | None]:
    """Return SWiFt's weights: (r - mean) / std over one task's conversations, ddof 1 (section 3.3).

    Without `center` no mean is subtracted, without `scale` nothing is divided, and `clip` limits
    the absolute value. With a standard deviation of 0 all weights are 0. For fewer than 2 rewards
    they are None: the task is left out.
    """
    if len(rewards) < 2:
        return [None] * len(rewards)
    mean = fmean(rewards)
    std = math.sqrt(sum((value - mean) ** 2 for value in rewards) / (len(rewards) - 1))
    if std <= 1e-12 * max(1.0, abs(mean)):
        return [0.0] * len(rewards)
    weights = [(value - mean * center) / (std if scale else 1.0) for value in rewards]
    return list(weights) if clip is None else [max(-clip, min(clip, w)) for w in weights]


def best_weights(
    rewards: Sequence[float], rule: TieRule = "random", *key: object
) -> list[float | None]:
    """Return STaR-GATE's weights: 1 for the task's best conversation, None for the others.

    Of several best ones `random` takes one, drawn by `key`; `all` takes all; `drop` none. Raise
    ValueError for no rewards.
    """
    winners = break_ties(equal_indices(rewards, max(rewards)), rule, *key, "best")
    return [1.0 if i in winners else None for i in range(len(rewards))]


def threshold_weights(rewards: Sequence[float], threshold: float) -> list[float | None]:
    """Return STaR-GATE's weights by threshold: 1 for a reward of at least that, else None."""
    return [1.0 if value >= threshold else None for value in rewards]


def weigh_by_task(selection: Selection, rule: WeightRule) -> Weighted:
    """Return the conversations weighted task by task with a rule, and those without weight counted
    as skipped.

    Tasks come in the order of the log. Raise TrainError if no conversation is left.
    """
    return _weigh_groups(selection, lambda _, rewards: rule(rewards))


def _weigh_groups(
    selection: Selection,
    rule: Callable[[str, Sequence[float]], list[float | None]],
    *,
    all_tasks: bool = False,
) -> Weighted:
    """Return the conversations weighted with a rule of (task name, rewards), task by task or, with
    the flag, all at once (their task name is ""). Raises TrainError if none is left."""
    items: list[tuple[LoggedConversation, float]] = []
    skipped: Counter[str] = Counter()
    tasks = selection.by_task()
    flat = sum(
        len(group) > 1 and len({item.reward for item in group}) == 1 for group in tasks.values()
    )
    groups: Mapping[str, Sequence[LoggedConversation]] = (
        {"": selection.logged} if all_tasks else tasks
    )
    for task, logged in groups.items():
        rewards = [item.reward for item in logged]
        for item, weight in zip(logged, rule(task, rewards), strict=True):
            if weight is None:
                skipped["weighted out"] += 1
            else:
                items.append((item, weight))
    if not items:
        raise TrainError("no conversation is left after weighting; check `weighting`")
    return Weighted(selection, items, dict(skipped), flat / len(tasks))


def weigh_composed(selection: Selection, weighting: Weighting, seed: int = 0) -> Weighted:
    """Return the conversations, or their turns, with the weights that the fields of `weighting`
    define.

    `seed` draws among ties. With `over: batch` the weights are the bare rewards, which the training
    turns into weights batch by batch. Raise TrainError if none is left, or if all weights are 0.
    """
    selection, uncredited = (
        with_turn_credit(selection, weighting)
        if weighting.reward == "advantage"
        else (selection, {})
    )
    weighted = _weigh_composed(selection, weighting, seed)
    return replace(weighted, skipped=uncredited | weighted.skipped)


def with_turn_credit(
    selection: Selection, weighting: Weighting
) -> tuple[Selection, dict[str, int]]:
    """Return (the selection of conversations all of whose turns have credit, counts of the others
    by reason).

    The credit becomes their turns' rewards. The counts are empty if there are no others. Raise
    TrainError if there is no such conversation.
    """
    runs = [part.run for part in selection.parts] or [selection.run]
    advantages = {run.manifest.id: turn_advantages(run, weighting.credit) for run in runs}
    credited: list[LoggedConversation] = []
    for item in selection.logged:
        manifest = selection.run_of(item).manifest
        own = advantages[manifest.id].get(item.conversation_id, {})
        turns = policy_turns(manifest.protocol, item.conversation)
        if all(turn in own for turn in turns):
            credited.append(replace(item, turns=tuple(own[turn] for turn in turns)))
    if not credited:
        raise TrainError(
            f"{selection.run.path}: weighting.reward: advantage: found no conversation all of "
            "whose turns have credit; give it with convbench credit"
        )
    uncredited = len(selection.logged) - len(credited)
    selected = replace(selection, logged=credited)
    return selected, ({"without credit of every turn": uncredited} if uncredited else {})


def _weigh_composed(selection: Selection, weighting: Weighting, seed: int) -> Weighted:
    turns = weighting.reward != "conversation"
    if weighting.over == "batch":
        keep: WeightRule = list
        return weigh_turns(selection, keep) if turns else weigh_by_task(selection, keep)
    if turns:
        weighted = weigh_turns(
            selection,
            lambda members: shape_weights(members, weighting, seed),
            all_tasks=weighting.over == "all",
        )
    else:
        weighted = _weigh_groups(
            selection,
            lambda group, members: shape_weights(members, weighting, seed, group),
            all_tasks=weighting.over == "all",
        )
    if all(weight == 0 for weight in _all_weights(weighted)):
        raise TrainError(
            f"weighting: all {len(_all_weights(weighted))} weights are 0: the rewards within every "
            "group are equal; expected some to differ; build with more samples or a higher "
            "temperature"
        )
    if weighting.keep != "best" or weighting.over != "task":
        return weighted
    rewards = [[item.reward for item in members] for members in selection.by_task().values()]
    tied = sum(len(equal_indices(members, max(members))) > 1 for members in rewards)
    return replace(weighted, ties=TieSummary(weighting.ties, tied, len(rewards)))


def refuse_composed_fields(name: str, weighting: Weighting) -> None:
    """Raise TrainError for fields of `weighting` that this learner does not use."""
    default = Weighting()
    if weighting.reward == "advantage":
        raise TrainError(
            f"weighting.reward: found advantage, which trainer {name} does not use; add "
            "--set trainer=weighted"
        )
    for field_name in COMPOSED_FIELDS:
        setting = getattr(weighting, field_name)
        if setting != getattr(default, field_name):
            raise TrainError(
                f"weighting.{field_name}: found {setting}, which trainer {name} does not use; "
                "add --set trainer=weighted"
            )


def weigh_refit(selection: Selection, weighting: Weighting) -> Weighted:
    """Return the conversations, or their turns, with their rewards as weights (ReFit).

    Raise TrainError for a negative reward, if all rewards of conversations are equal (they are then
    not told apart), or for fields of `weighting` that refit does not use.
    """
    refuse_composed_fields("refit", weighting)
    if weighting.reward == "turn":
        return weigh_turns(selection, reward_weights)
    if len(selection.logged) > 1 and len({item.reward for item in selection.logged}) == 1:
        raise TrainError(
            "refit: all rewards of conversations are equal and only those of their turns differ; "
            "expected weighting.reward: turn"
        )
    return weigh_by_task(selection, reward_weights)


def weigh_swift(selection: Selection, weighting: Weighting) -> Weighted:
    """Return the conversations, or their turns, with SWiFt's weights. Raises TrainError if every
    task has one conversation, which cannot be standardised, or if all weights are 0."""
    refuse_composed_fields("swift", weighting)
    sizes = array("q", map(len, selection.by_task().values()))
    small = sum(size < 2 for size in sizes)
    if small == len(sizes):
        raise TrainError(
            "swift: found one judged conversation per task; expected at least 2 to standardise "
            "rewards; build with --samples 3, or train refit"
        )

    def standardize(rewards: Sequence[float]) -> list[float | None]:
        return standardized_weights(
            rewards, center=weighting.center, scale=weighting.scale, clip=weighting.clip
        )

    weighted = (
        weigh_turns(selection, standardize)
        if weighting.reward == "turn"
        else weigh_by_task(selection, standardize)
    )
    skipped = {"in a task with fewer than 2 verdicts": small} if small else {}
    if all(weight == 0 for weight in _all_weights(weighted)):
        raise TrainError(
            "swift: within every task all rewards are equal, so all weights are 0; expected some "
            "to differ; build with more samples or a higher temperature"
        )
    return replace(weighted, skipped=skipped | (weighted.skipped if weighted.by_turn else {}))


def _all_weights(weighted: Weighted) -> Sequence[float]:
    """Return all weights: those of turns if turns are weighted, else those of conversations."""
    turns = [w for turn_weights in weighted.by_turn.values() for w in turn_weights if w is not None]
    return turns or [weight for _, weight in weighted.items]


def weigh_turns(selection: Selection, rule: WeightRule, *, all_tasks: bool = False) -> Weighted:
    """Return the conversations with weighted turns, and as each one's weight the mean of its
    turns'.

    The rule gets the rewards of the t-th turn of one task's conversations (with the flag, of all
    tasks'), so that a turn is compared with turns of its position. Conversations without a weighted
    turn are left out of `items`. Raise TrainError if a conversation has no rewards of turns, or if
    none is left.
    """
    by_turn: dict[str, list[float | None]] = {}
    tasks = selection.by_task()
    flat = sum(
        len(group) > 1 and len(set(map(_turn_rewards, group))) == 1 for group in tasks.values()
    )
    for logged in [selection.logged] if all_tasks else tasks.values():
        rewards = [_turn_rewards(item) for item in logged]
        for item in logged:
            by_turn[item.conversation_id] = [None] * len(item.turns)
        for t in range(max(map(len, rewards))):
            at_turn = [item for item in logged if len(item.turns) > t]
            turn_weights = rule([item.turns[t] for item in at_turn])
            for item, weight in zip(at_turn, turn_weights, strict=True):
                by_turn[item.conversation_id][t] = weight
    skipped, items = Counter[str](), list[tuple[LoggedConversation, float]]()
    for item in selection.logged:
        known = [w for w in by_turn[item.conversation_id] if w is not None]
        skipped["turns weighted out"] += len(item.turns) - len(known)
        if known:
            items.append((item, fmean(known)))
    if not items:
        raise TrainError("no turn is left after weighting; check `weighting`")
    turns = {name: tuple(turn_weights) for name, turn_weights in by_turn.items()}
    return Weighted(selection, items, dict(+skipped), flat / len(tasks), by_turn=turns)


def _turn_rewards(item: LoggedConversation) -> tuple[float, ...]:
    """Return the rewards of a conversation's turns. Raises TrainError if it has none."""
    if not item.turns:
        raise TrainError(
            f"weighting.reward: turn: found no rewards of turns in conversation "
            f"{item.conversation_id}; expected a judge that scores turns; judge with "
            "rubric-turns@MODEL, or with --set judge.per=turn"
        )
    return item.turns


def weigh_star_gate(selection: Selection, weighting: Weighting, seed: int = 0) -> Weighted:
    """Return the conversations with STaR-GATE's weights: 1 for each task's best one, or for all of
    at least `threshold`.

    The others are left out. `seed` draws among a task's ties, which `ties` counts (None with a
    threshold). Raise TrainError if none is left, or for fields of `weighting` that it does not use.
    """
    refuse_composed_fields("star_gate", weighting)
    threshold, rule = weighting.threshold, weighting.ties
    if weighting.reward == "turn":
        raise TrainError(
            "weighting.reward: turn: this recipe selects conversations, not turns; expected "
            "conversation; refit and swift weight turns"
        )
    if threshold is not None:
        return weigh_by_task(selection, lambda rewards: threshold_weights(rewards, threshold))
    tasks = selection.by_task().values()
    rewards = ([item.reward for item in logged] for logged in tasks)
    tied = sum(len(equal_indices(group, max(group))) > 1 for group in rewards)
    weighted = _weigh_groups(selection, lambda task, group: best_weights(group, rule, seed, task))
    return replace(weighted, ties=TieSummary(rule, tied, len(tasks)))


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
