"""Compare two conversations that are shown to a judge in one order (`per: pair`)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from convbench.errors import ConvbenchError, DataError
from convbench.judge.ask import ask, form_of
from convbench.judge.function import check_scores
from convbench.judge.model import unread, used
from convbench.judge.replies import Scores
from convbench.judge.resolve import Judge
from convbench.judge.several import messages_of
from convbench.judge.work import Tools
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
class Shown:
    """Two conversations in the order in which they are shown."""

    first: Conversation
    second: Conversation
    example: Example
    until_decided: bool = False
    asked: int = 0
    """Number of replies in earlier attempts; the journal must not answer with them."""


def key_of(judge: Judge, shown: Shown) -> str:
    """Return the prefix of an order's journal keys."""
    first, second = shown.first.conversation_id, shown.second.conversation_id
    return f"pair/{judge.fingerprint}/{first}|{second}"


def pair_messages(judge: Judge, shown: Shown) -> list[Message]:
    """Return the messages to the judge's model on an order."""
    key = f"{key_of(judge, shown)}#{shown.asked}"
    return messages_of(judge.spec, (shown.first, shown.second), shown.example, key)


def preferred(spec: JudgeSpec, scores: Mapping[str, float]) -> float:
    """Return the preference for the first conversation, 0 to 1. The scale of the reward's metric
    goes from the first (lowest) to the second (highest)."""
    low, high = spec.limits(spec.reward.metric)
    return (high - scores[spec.reward.metric]) / (high - low)


async def prefer(judge: Judge, shown: Shown, protocol: ProtocolSpec, tools: Tools) -> Comparison:
    """Return the judge's comparison of an order; a failed one if no reply could be read. Errors
    that end the run are raised."""
    if judge.model is None:
        return await _by_function(judge, shown, protocol)
    if tools.caller is None or tools.held is None:
        raise DataError(f"judge {judge.name}: found no model; expected one to ask")
    messages = pair_messages(judge, shown)
    done = await ask(
        tools.caller,
        tools.held,
        judge,
        messages,
        key_of(judge, shown),
        shown.asked,
        form_of(judge.spec),
    )
    usage = used(done, shown.asked)
    if isinstance(done.result, Scores):
        words = done.result.justifications
        return _said(judge, shown, done.result.scores, justifications=words, **usage)
    kind, message, raw = unread(done)
    return _failed(judge, shown, kind, message, reply=raw, **usage)


def broken(judge: Judge, shown: Shown, error: Exception) -> Comparison:
    """Return the failed comparison of an order whose job raised an error."""
    kind = type(error).__name__
    message = str(error) if isinstance(error, ConvbenchError) else f"{kind}: {error}"
    return _failed(judge, shown, kind, message, attempts=shown.asked)


async def _by_function(judge: Judge, shown: Shown, protocol: ProtocolSpec) -> Comparison:
    """Return the comparison by the spec's function `fn(first, second, example, protocol)`."""
    if judge.function is None:
        raise DataError(f"judge {judge.name}: kind {judge.spec.kind} has no function to run")
    result = judge.function(shown.first, shown.second, shown.example, protocol)
    scores: Mapping[str, float] = await result if inspect.isawaitable(result) else result
    check_scores(judge, scores)
    return _said(judge, shown, dict(scores), cost_usd=0.0)


def _said(judge: Judge, shown: Shown, scores: dict[str, float], **more: Any) -> Comparison:
    whole = judge.spec.whole(scores)
    return Comparison(
        **_named(judge, shown), scores=whole, preferred=preferred(judge.spec, whole), **more
    )


def _failed(judge: Judge, shown: Shown, kind: str, message: str, **more: Any) -> Comparison:
    return Comparison(**_named(judge, shown), failure=Failure.said(kind, message), **more)


def _named(judge: Judge, shown: Shown) -> dict[str, Any]:
    """Return the fields that every comparison of this order has."""
    return {
        "first": shown.first.conversation_id,
        "second": shown.second.conversation_id,
        "judge": judge.name,
        "fingerprint": judge.fingerprint,
        "group_id": shown.example.group_id,
        "until_decided": shown.until_decided,
        "ended": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
