"""Langfuse's traces: {trace, observations} as exported, or {batch} as a program sends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Item, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_text, kept

FACTS = ("name", "userId", "sessionId", "tags", "environment", "release")


def recognises(first: object) -> bool:
    """A trace with its observations, or a batch of events."""
    if not isinstance(first, dict):
        return False
    inside = isinstance(as_mapping(first.get("trace")).get("observations"), list)
    is_batch = "body" in as_mapping(next(iter(as_list(first.get("batch"))), None))
    return inside or "observations" in first or is_batch


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each generation with its history, of which copies are dropped later; of a trace without
    one that can be read, what its root was asked and said. Scores are of the trace."""
    trace, observations = _parts(record)
    observations.sort(key=lambda one: as_text(one.get("startTime")))
    calls = [one for one in observations if _kind(one) == "GENERATION"]
    marks = {call.get("id") for call in calls}  # some frameworks log a call within a call
    calls = [call for call in calls if call.get("parentObservationId") not in marks]
    logs = [log for call in calls if (log := _read(call, trace)).has_reply]
    if not any(_asks(log) for log in logs):
        roots = [trace] + [one for one in observations if not one.get("parentObservationId")]
        logs = [log for root in roots if (log := _read(root, trace)).has_reply][:1] or logs
    tools = [one for one in observations if _kind(one) == "TOOL"]
    if tools and sum(_asks(log) for log in logs) <= len(logs) > 1:
        logs = [_assembled(logs[0], [*calls, *tools], trace)]  # no call has the history
    if not logs:
        yield LeftOut("no call of a model with its content")
    yield from logs


def _kind(one: dict[str, Any]) -> str:
    return as_text(one.get("type")).upper()


def _asks(log: LogConversation) -> int:
    return sum(message.role != "assistant" for message in log.messages)


def _assembled(
    first: LogConversation, parts: list[dict[str, Any]], trace: dict[str, Any]
) -> LogConversation:
    """Return a trace's conversation as its calls and the results of its tools by their time."""
    first.messages = [m for m in first.messages if m.role != "assistant"]
    for part in sorted(parts, key=lambda one: as_text(one.get("startTime"))):
        said = [m for m in _read(part, trace).messages if m.role == "assistant"]
        if _kind(part) == "TOOL":
            said = [LogMessage("tool", "\n".join(message.text for message in said))]
        first.messages += said
    return first


def _parts(record: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the trace and its observations, also of a batch of events about them."""
    if "batch" not in record:
        trace = as_mapping(record.get("trace")) or record
        scores = trace.get("scores") or record.get("scores")
        observations = record.get("observations") or trace.get("observations") or []
        return {**trace, "scores": scores}, list(observations)
    trace = {}
    known: dict[str, dict[str, Any]] = {}
    for event in record["batch"]:
        kind, body = as_text(event.get("type")), as_mapping(event.get("body"))
        if kind.startswith("trace"):
            trace |= body
        elif kind.startswith(("generation", "span", "observation")):
            one = known.setdefault(as_text(body.get("id")), {"type": kind.partition("-")[0]})
            one |= body
    return trace, list(known.values())


def _read(one: dict[str, Any], trace: dict[str, Any]) -> LogConversation:
    tokens = usage_of(one.get("usageDetails"))
    scores = [as_mapping(score) for score in as_list(trace.get("scores"))]
    return LogConversation(
        read_exchange(one.get("input"), one.get("output"), model=one.get("model"), usage=tokens),
        id=trace.get("id") or one.get("traceId"),
        rewards={as_text(score.get("name")): score.get("value") for score in scores},
        failure=as_text(one.get("statusMessage")) if one.get("level") == "ERROR" else None,
        time=one.get("startTime") or trace.get("timestamp"),
        metadata=kept(trace, *FACTS),
    )
