"""LiteLLM's standard logging payload, and rows of its spend log where content is stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.chats import read_exchange
from convbench.formats.dialects import usage_of
from convbench.formats.log import LeftOut, LogConversation
from convbench.formats.values import as_mapping, kept, parsed

FACTS = ("model", "status", "custom_llm_provider", "request_tags", "end_user", "session_id")


def recognises(first: object) -> bool:
    """A payload or a row."""
    row = first if isinstance(first, dict) else {}
    return "call_type" in row and ("response_cost" in row or "spend" in row)


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the call of a payload."""
    if not parsed(record.get("response")):
        raise LeftOut("the content was not stored")
    cost = record.get("response_cost", record.get("spend"))
    settings = as_mapping(record.get("model_parameters"))
    yield LogConversation(
        read_exchange(
            record.get("messages"),
            record["response"],
            model=record.get("model"),
            usage=usage_of(kept(record, "prompt_tokens", "completion_tokens"), cost),
        ),
        id=record.get("trace_id") or record.get("session_id"),
        tools=settings.get("tools"),
        temperature=settings.get("temperature"),
        failure="the call failed" if record.get("status") == "failure" else None,
        time=record.get("startTime"),
        metadata={k: v for k, v in kept(record, *FACTS).items() if v != "[]"},
    )
