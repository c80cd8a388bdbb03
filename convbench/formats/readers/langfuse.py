"""Langfuse's traces: {trace, observations} as exported, or {batch} as a program sends them."""

from functools import partial
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import Items, LogConversation, each
from convbench.formats.traces import read_steps
from convbench.formats.values import as_mapping, as_text, at, first_of, kept, named_scores


def recognises(first: object) -> bool:
    fields = as_mapping(at(first, "trace")) or as_mapping(first)
    return isinstance(fields.get("observations"), list) or bool(at(first, "batch", 0, "body"))


def read(record: Any, where: str) -> Items:
    """Yield the calls of a trace. Scores are of the trace."""
    trace = {**as_mapping(record.get("trace")), **record}
    known: dict[Any, dict[str, Any]] = {}
    for event in record.get("batch", ()):
        kind, body = as_text(event.get("type")).partition("-")[0], as_mapping(event.get("body"))
        if kind == "trace":
            trace |= body
        elif kind in ("generation", "span", "observation"):
            known.setdefault(as_text(body.get("id")), {"type": kind}).update(body)
    steps = [{**trace, "type": "trace"}, *(trace.get("observations") or ()), *known.values()]
    yield from read_steps(each(steps, partial(_step, trace)))


def _step(trace: dict[str, Any], one: dict[str, Any]) -> Items:
    own = {"model": one.get("model"), "usage": usage_of(one.get("usageDetails"))}
    log = LogConversation(read_exchange(one.get("input"), one.get("output"), **own))
    log.metadata = kept(trace, "name", "userId", "sessionId", "tags", "environment", "release")
    log.id = trace.get("id") or one.get("traceId")
    log.time = one.get("startTime") or trace.get("timestamp")
    log.rewards = named_scores(trace.get("scores"))
    log.kind, log.step = as_text(one.get("type")).lower(), one.get("id")
    log.failure = as_text(one.get("statusMessage")) if one.get("level") == "ERROR" else None
    log.within = first_of(one, "parentObservationId", "traceId")
    yield log
