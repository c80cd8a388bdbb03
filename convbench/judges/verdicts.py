"""Constructors of verdicts: scored, unscorable, and failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from convbench.errors import ConvbenchError
from convbench.judges.resolve import Judge
from convbench.rewards import conversation_reward, turns_reward
from convbench.schema import Conversation, Failure, ProtocolSpec, Verdict
from convbench.views import asking_turns

LEFT_OUT, TEMPERATURE = "left_out", "temperature"
"""In a verdict's details: sampling parameters that the judge's model does not accept."""


def scored_verdict(
    judge: Judge,
    conversation: Conversation,
    protocol: ProtocolSpec,
    scores: dict[str, float],
    **more: Any,
) -> Verdict:
    """Return the verdict with these scores, `overall` added if weights define it, and with their
    reward.

    With `turns`, a list of scores by turn, the reward is made from these. Other keywords become
    fields of the verdict; the cost is 0 if the judge asks no model. Raise DataError if the reward's
    metric is not among the scores.
    """
    questions = len(asking_turns(protocol, conversation))
    rule, turns = judge.spec.reward, more.pop("turns", None)
    scores = judge.spec.with_overall(scores)
    verdict_reward = (
        conversation_reward(rule, protocol, scores, questions)
        if turns is None
        else turns_reward(rule, protocol, turns, questions)
    )
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        scores=scores,
        reward=verdict_reward,
        ended=_utc_now(),
        **_with_cost(judge, more),
    )


def reading_verdict(judge: Judge, conversation_id: str, **more: Any) -> Verdict:
    """Return the verdict of a judge that gives neither scores nor a reward; keywords become fields
    of the verdict."""
    return Verdict(
        conversation_id=conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        ended=_utc_now(),
        **more,
    )


def unscorable_verdict(
    judge: Judge, conversation_id: str, kind: str, message: str, **more: Any
) -> Verdict:
    """Return a verdict without scores and reward, with a failure of this kind and message.

    Other keywords become fields of the verdict; the cost is 0 if the judge asks no model.
    """
    return Verdict(
        conversation_id=conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        failure=Failure.from_message(kind, message),
        ended=_utc_now(),
        **_with_cost(judge, more),
    )


def _with_cost(judge: Judge, more: dict[str, Any]) -> dict[str, Any]:
    """Return these fields with a cost of 0 if the judge asks no model."""
    return more if judge.model else {"cost_usd": 0.0, **more}


def failed_verdict(judge: Judge, conversation_id: str, error: Exception) -> Verdict:
    """Return the failed verdict of a job that raised an error, with the name of the error's class
    as kind and 0 attempts."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, ConvbenchError) else f"{kind}: {error}"
    return unscorable_verdict(judge, conversation_id, kind, message, attempts=0)


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
