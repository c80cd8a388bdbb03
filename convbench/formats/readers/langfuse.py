"""Langfuse's traces: {trace, observations} as exported, or {batch} as a program sends them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, as_text, as_time
from convbench.formats.log import Item, LeftOut, LogConversation, LogMessage
from convbench.formats.payload import read_exchange


def recognises(first: object) -> bool:
    """A trace with its observations, or a batch of events."""
    if not isinstance(first, dict):
        return False
    inside = isinstance(as_mapping(first.get("trace")).get("observations"), list)
    batch = first.get("batch")
    is_batch = isinstance(batch, list) and bool(batch) and "body" in as_mapping(batch[0])
    return inside or "observations" in first or is_batch


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each generation with its history, of which copies are dropped later; of a trace without
    one that can be read, what its root was asked and said. Scores are of the trace."""
    trace, observations = _parts(record)
    scores = {
        as_text(score.get("name")): number
        for score in trace.get("scores") or record.get("scores") or ()
        if (number := as_number(score.get("value"))) is not None
    }
    rewards = scores | ({"reward": next(iter(scores.values()))} if len(scores) == 1 else {})
    observations = sorted(observations, key=lambda one: as_text(one.get("startTime")))
    calls = [o for o in observations if as_text(o.get("type")).upper() == "GENERATION"]
    marks = {call.get("id") for call in calls}  # some frameworks log a call within a call
    calls = [call for call in calls if call.get("parentObservationId") not in marks]
    logs = [_read(one, trace) for one in calls]
    logs = [log for log in logs if any(m.role == "assistant" for m in log.messages)]
    if not any(any(m.role == "user" for m in log.messages) for log in logs):
        roots = [trace] + [o for o in observations if not o.get("parentObservationId")]
        whole = [_read(one, trace) for one in roots]
        logs = [w for w in whole if any(m.role == "assistant" for m in w.messages)][:1] or logs
    asked = [m for log in logs for m in log.messages if m.role != "assistant"]
    tools = [o for o in observations if as_text(o.get("type")).upper() == "TOOL"]
    if tools and len(asked) <= len(logs) > 1:  # no call has the history, so it is put together
        logs = [_assembled(logs[0], [*calls, *tools], trace)]
    if not logs:
        yield LeftOut("no call of a model with its content")
    for log in logs:
        log.rewards = dict(rewards)
        yield log


def _assembled(
    first: LogConversation, parts: list[dict[str, Any]], trace: dict[str, Any]
) -> LogConversation:
    """Return a trace's conversation as its calls and the results of its tools by their time."""
    first.messages = [m for m in first.messages if m.role != "assistant"]
    for part in sorted(parts, key=lambda one: as_text(one.get("startTime"))):
        said = _read(part, trace).messages
        if as_text(part.get("type")).upper() == "TOOL":
            text = "\n".join(m.text for m in said if m.role == "assistant")
            first.messages.append(LogMessage("tool", text))
        else:
            first.messages += [m for m in said if m.role == "assistant"]
    return first


def _parts(record: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the trace and its observations, also of a batch of events about them."""
    trace = {} if "batch" in record else as_mapping(record.get("trace")) or record
    if "batch" not in record:
        return trace, record.get("observations") or trace.get("observations") or []
    observations: dict[str, dict[str, Any]] = {}
    for event in record["batch"]:
        kind, body = as_text(event.get("type")), as_mapping(event.get("body"))
        if kind.startswith("trace"):
            trace |= body
        elif kind.startswith(("generation", "span", "observation")):
            known = observations.setdefault(
                as_text(body.get("id")), {"type": kind.partition("-")[0]}
            )
            known |= body
    return trace, list(observations.values())


def _read(one: dict[str, Any], trace: dict[str, Any]) -> LogConversation:
    usage = as_mapping(one.get("usageDetails"))
    messages: list[LogMessage] = read_exchange(
        one.get("input"),
        one.get("output"),
        model=one.get("model"),
        usage=(usage.get("input"), usage.get("output"), None),
    )
    facts = ("name", "userId", "sessionId", "tags", "environment", "release")
    return LogConversation(
        messages,
        id=as_text(trace.get("id") or one.get("traceId")),
        failure=as_text(one.get("statusMessage")) if one.get("level") == "ERROR" else None,
        time=as_time(one.get("startTime") or trace.get("timestamp")),
        metadata={k: trace[k] for k in facts if trace.get(k) not in (None, "", [])},
    )
