"""Logged calls of tools and their results, folded into the message that they lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from convbench.errors import DataError
from convbench.formats.extra import ASSISTANTS
from convbench.schema import ToolCall, ToolResult, ToolRound

Rounds = dict[int, tuple[ToolRound, ...]]


def folded(items: Sequence[Any], where: str) -> tuple[list[Any], Rounds]:
    """Return (messages without calls and results, what was called before a message by its place).

    Takes OpenAI's form: an assistant's `tool_calls`, each answered by a message of role `tool`
    with its `tool_call_id`, then the assistant's message. Raises DataError for any other order.
    """
    out: list[Any] = []
    rounds: Rounds = {}
    pending: list[ToolRound] = []
    for index, item in enumerate(items):
        here = f"{where}[{index}]"
        role = _role(item)
        if role == "tool" and isinstance(item, dict) and item.get("tool_call_id"):
            _answer(pending, item, here)
            continue
        _all_answered(pending, here)
        if role in ASSISTANTS and item.get("tool_calls"):
            pending.append(_round(item, here))
            continue
        if pending and role not in ASSISTANTS:
            raise DataError(f"{here}: found {role!r} after a tool's result; expected the assistant")
        if pending:
            rounds[len(out)] = tuple(pending)
            pending = []
        out.append(item)
    if pending:
        raise DataError(f"{where}: found calls of tools at the end; expected the assistant's words")
    return out, rounds


def _role(item: Any) -> str:
    return str(item.get("role", item.get("from"))).lower() if isinstance(item, dict) else ""


def _round(item: Mapping[str, Any], where: str) -> ToolRound:
    content = item.get("content") or ""
    if not isinstance(content, str):
        raise DataError(f"{where}: content beside calls is {type(content).__name__}; expected text")
    try:
        calls = [
            ToolCall(id=one["id"], name=one["function"]["name"],
                     arguments=one["function"]["arguments"])
            for one in item["tool_calls"]
        ]  # fmt: skip
        if len({call.id for call in calls}) != len(calls):
            raise DataError(f"{where}: tool_calls: found an id twice; expected one each")
        return ToolRound(content=content, calls=tuple(calls))
    except (KeyError, TypeError, ValidationError):
        raise DataError(
            f"{where}: tool_calls: expected [{{id, function: {{name, arguments: JSON text}}}}, …]"
        ) from None


def _answer(pending: list[ToolRound], item: Mapping[str, Any], where: str) -> None:
    """Put a result to its call."""
    mark, content = item["tool_call_id"], item.get("content")
    there = {one.id for one in pending[-1].results} if pending else set()
    calls = pending[-1].calls if pending else ()
    call = next((one for one in calls if one.id == mark and one.id not in there), None)
    if call is None:
        raise DataError(
            f"{where}: found a result of {str(mark)[:60]!r}; expected its call before it"
        )
    if not isinstance(content, str):
        raise DataError(f"{where}: content is {type(content).__name__}; expected text")
    try:
        result = ToolResult(id=call.id, name=call.name, content=content)
    except ValidationError:
        raise DataError(f"{where}: content: found {len(content):,} characters; too many") from None
    results = (*pending[-1].results, result)
    pending[-1] = pending[-1].model_copy(update={"results": results})


def _all_answered(pending: list[ToolRound], where: str) -> None:
    if pending and len(pending[-1].results) != len(pending[-1].calls):
        raise DataError(f"{where}: found calls of tools without their results before it")
