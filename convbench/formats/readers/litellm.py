"""LiteLLM's standard logging payload, and rows of its spend log where content is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, as_time
from convbench.formats.log import LeftOut, LogConversation
from convbench.formats.payload import read_exchange, unpacked

FACTS = ("model", "status", "custom_llm_provider", "request_tags", "end_user", "session_id")


def recognises(first: object) -> bool:
    """A payload or a row."""
    return (
        isinstance(first, dict)
        and "call_type" in first
        and ("response_cost" in first or "spend" in first)
    )


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the call of a payload."""
    asked, said = unpacked(record.get("messages")), unpacked(record.get("response"))
    if not said:
        raise LeftOut("the content was not stored")
    cost = as_number(record.get("response_cost", record.get("spend")))
    usage = (record.get("prompt_tokens"), record.get("completion_tokens"), cost)
    settings = as_mapping(record.get("model_parameters"))
    yield LogConversation(
        read_exchange(asked, said, model=record.get("model"), usage=usage),
        id=record.get("trace_id") or record.get("session_id"),
        tools=settings.get("tools") or [],
        temperature=as_number(settings.get("temperature")),
        failure="the call failed" if record.get("status") == "failure" else None,
        time=as_time(record.get("startTime")),
        metadata={k: record[k] for k in FACTS if record.get(k) not in (None, "", [], "[]")},
    )
