"""Constructors of verdicts: scored, unscorable, and failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from convbench.errors import ConvbenchError
from convbench.judge.resolve import Judge
from convbench.rewards import of_turns, reward
from convbench.schema import Conversation, Failure, ProtocolSpec, Verdict
from convbench.views import asking_turns


def scored(
    judge: Judge,
    conversation: Conversation,
    protocol: ProtocolSpec,
    scores: dict[str, float],
    **more: Any,
) -> Verdict:
    """Return the verdict with these scores and their reward. With `turns`, a list of scores by
    turn, the reward is made from these."""
    questions = len(asking_turns(protocol, conversation))
    rule, turns = judge.spec.reward, more.pop("turns", None)
    scores = judge.spec.whole(scores)
    whole = (
        reward(rule, protocol, scores, questions)
        if turns is None
        else of_turns(rule, protocol, turns, questions)
    )
    return Verdict(
        conversation_id=conversation.conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        scores=scores,
        reward=whole,
        ended=_now(),
        **_costing(judge, more),
    )


def unscorable(judge: Judge, conversation_id: str, kind: str, message: str, **more: Any) -> Verdict:
    """Return a verdict without scores, with this failure."""
    return Verdict(
        conversation_id=conversation_id,
        judge=judge.name,
        fingerprint=judge.fingerprint,
        failure=Failure.said(kind, message),
        ended=_now(),
        **_costing(judge, more),
    )


def _costing(judge: Judge, more: dict[str, Any]) -> dict[str, Any]:
    """Return these fields with a cost of 0 if the judge asks no model."""
    return more if judge.model else {"cost_usd": 0.0, **more}


def failed_verdict(judge: Judge, conversation_id: str, error: Exception) -> Verdict:
    """Return the failed verdict of a job that raised an error."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, ConvbenchError) else f"{kind}: {error}"
    return unscorable(judge, conversation_id, kind, message, attempts=0)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
