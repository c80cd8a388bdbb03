"""From scores to the trajectory reward."""

from __future__ import annotations

from collections.abc import Mapping

from convbench.errors import DataError
from convbench.schema import ProtocolSpec, Reward


def discount(reward: Reward, protocol: ProtocolSpec) -> float:
    """Return gamma: the judge's own, else the protocol's, else 1."""
    for gamma in (reward.discount, protocol.discount):
        if gamma is not None:
            return gamma
    return 1.0


def reward(
    spec: Reward, protocol: ProtocolSpec, scores: Mapping[str, float], questions: int
) -> float:
    """Return metric / scale * gamma^n, n being the number of questions the policy asked.

    With the defaults this is the overall score rescaled to [0, 1] (Mukherjee et al. 2025,
    section 4); gamma^n is the discount of its adaptive setting, "the number of clarifying
    questions" (section 2). The paper has no marker by which a policy ends its asking and does not
    say whether the answer counts; here neither does (`views.asking_turns`), so that an answer
    without a question keeps its whole score. Raises DataError where the metric is not among the
    scores.
    """
    if spec.metric not in scores:
        found = ", ".join(sorted(scores)) or "no scores"
        raise DataError(f"reward.metric: expected {spec.metric!r} among the scores; found {found}")
    return float(scores[spec.metric] / spec.scale * discount(spec, protocol) ** questions)
