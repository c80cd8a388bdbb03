"""Compare two conversations that are shown to a judge in one order (`per: pair`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from convbench.errors import ConvbenchError, DataError
from convbench.judges.ask import ask_judge, form_of, transcript_messages
from convbench.judges.function import check_scores
from convbench.judges.model import failure_parts, usage_fields
from convbench.judges.replies import Scores
from convbench.judges.resolve import Judge
from convbench.judges.work import JudgeTools
from convbench.schema import (
    Conversation,
    Example,
    Failure,
    JudgeSpec,
    Message,
    ProtocolSpec,
)
from convbench.schema.judge import Comparison


@dataclass(frozen=True)
class PairOrder:
    """Two conversations in the order in which they are shown."""

    first: Conversation
    second: Conversation
    example: Example
    attempts: int = 0
    """Number of replies in earlier attempts; the journal must not answer with them."""


def pair_key(judge: Judge, shown: PairOrder) -> str:
    """Return the prefix of an order's journal keys."""
    first, second = shown.first.conversation_id, shown.second.conversation_id
    return f"pair/{judge.fingerprint}/{first}|{second}"


def pair_messages(judge: Judge, shown: PairOrder) -> list[Message]:
    """Return the messages to the judge's model on an order."""
    key = f"{pair_key(judge, shown)}#{shown.attempts}"
    return transcript_messages(judge.spec, (shown.first, shown.second), shown.example, key)


def preference_share(spec: JudgeSpec, scores: Mapping[str, float]) -> float:
    """Return the preference for the first conversation: 1 if the reward's metric has its lowest
    score, 0 if it has its highest, linear in between."""
    low, high = spec.score_limits(spec.reward.metric)
    return (high - scores[spec.reward.metric]) / (high - low)


async def compare_pair(
    judge: Judge, shown: PairOrder, protocol: ProtocolSpec, tools: JudgeTools
) -> Comparison:
    """Return the judge's comparison of an order; a failed one if no reply could be read or the
    model gives an error.

    A judge without a model is called as a function. Errors that end the run are raised; so is
    DataError without model and function, or for scores that `check_scores` refuses.
    """
    if judge.model is None:
        return await _by_function(judge, shown, protocol)
    if tools.caller is None or tools.kind_state is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    messages = pair_messages(judge, shown)
    done = await ask_judge(
        tools.caller,
        tools.kind_state,
        judge,
        messages,
        pair_key(judge, shown),
        shown.attempts,
        form_of(judge.spec),
    )
    usage = usage_fields(done, shown.attempts)
    if isinstance(done.result, Scores):
        words = done.result.justifications
        return _scored_comparison(judge, shown, done.result.scores, justifications=words, **usage)
    kind, message, raw = failure_parts(done)
    return _failed_comparison(judge, shown, kind, message, reply=raw, **usage)


def broken_comparison(judge: Judge, shown: PairOrder, error: Exception) -> Comparison:
    """Return the failed comparison of an order whose job raised an error, with the name of the
    error's class as kind."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, ConvbenchError) else f"{kind}: {error}"
    return _failed_comparison(judge, shown, kind, message, attempts=shown.attempts)


async def _by_function(judge: Judge, shown: PairOrder, protocol: ProtocolSpec) -> Comparison:
    """Return the comparison by the spec's function `fn(first, second, example, protocol)`."""
    if judge.function is None:
        raise DataError(f"judge {judge.name}: kind {judge.spec.kind} has no function to run")
    result = judge.function(shown.first, shown.second, shown.example, protocol)
    scores: Mapping[str, float] = await result if inspect.isawaitable(result) else result
    check_scores(judge, scores)
    return _scored_comparison(judge, shown, dict(scores), cost_usd=0.0)


def _scored_comparison(
    judge: Judge, shown: PairOrder, scores: dict[str, float], **more: Any
) -> Comparison:
    all_scores = judge.spec.with_overall(scores)
    return Comparison(
        **_comparison_fields(judge, shown),
        scores=all_scores,
        preferred=preference_share(judge.spec, all_scores),
        **more,
    )


def _failed_comparison(
    judge: Judge, shown: PairOrder, kind: str, message: str, **more: Any
) -> Comparison:
    return Comparison(
        **_comparison_fields(judge, shown), failure=Failure.from_message(kind, message), **more
    )


def _comparison_fields(judge: Judge, shown: PairOrder) -> dict[str, Any]:
    """Return the fields that every comparison of this order has."""
    return {
        "first": shown.first.conversation_id,
        "second": shown.second.conversation_id,
        "judge": judge.name,
        "fingerprint": judge.fingerprint,
        "group_id": shown.example.group_id,
        "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
