"""Compute the trajectory reward from a judge's scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from convbench.errors import DataError
from convbench.schema import ProtocolSpec, Reward


def discount_factor(reward: Reward, protocol: ProtocolSpec) -> float:
    """Return gamma: the reward's own, else the protocol's, else 1."""
    for gamma in (reward.discount, protocol.discount):
        if gamma is not None:
            return gamma
    return 1.0


def turn_reward(spec: Reward, scores: Mapping[str, float]) -> float:
    """Return metric / scale of one turn, or of a conversation before discounting. Raises DataError
    if the metric is not among the scores."""
    if spec.metric not in scores:
        names = ", ".join(sorted(scores)) or "no scores"
        raise DataError(f"reward.metric: expected {spec.metric!r} among the scores; found {names}")
    return float(scores[spec.metric] / spec.scale)


def turns_reward(
    spec: Reward, protocol: ProtocolSpec, turns: Sequence[Mapping[str, float]], questions: int
) -> float:
    """Return the reward of a conversation from the scores of its policy turns, combined by
    `reward.together`.

    It is "the aggregated pedagogical value over n steps" (Mukherjee et al. 2025, section 2, first
    use case). `discount` sums gamma^(t-1) times the reward of the t-th turn; the others are
    multiplied by gamma^n, n being `questions`, like any reward. `turns` must not be empty. Raise
    DataError if a turn lacks the metric.
    """
    rewards = [turn_reward(spec, scores) for scores in turns]
    gamma = discount_factor(spec, protocol)
    if spec.together == "discount":
        return math.fsum(gamma**t * value for t, value in enumerate(rewards))
    if spec.together == "last":
        return rewards[-1] * gamma**questions
    return (fmean if spec.together == "mean" else math.fsum)(rewards) * gamma**questions


def conversation_reward(
    spec: Reward, protocol: ProtocolSpec, scores: Mapping[str, float], questions: int
) -> float:
    """Return metric / scale * gamma^n, n being the number of questions the policy asked.

    With the defaults this is the overall score rescaled to [0, 1] (Mukherjee et al. 2025,
    section 4); gamma^n is the discount of its adaptive setting, "the number of clarifying
    questions" (section 2). The paper has no marker with which a policy ends its questions, and does
    not say whether the answer counts; here neither counts (`views.asking_turns`), so that an answer
    without a question keeps its full score. Raises DataError if the metric is not among the scores.
    """
    return turn_reward(spec, scores) * discount_factor(spec, protocol) ** questions
