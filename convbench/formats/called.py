"""Logged calls of tools and their results, folded into the message that they lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from pydantic import ValidationError

from convbench.errors import DataError
from convbench.formats.extra import ASSISTANTS, Unusable
from convbench.schema import Reasoning, ToolCall, ToolResult, ToolRound

Rounds = dict[int, tuple[ToolRound, ...]]
Thought = Callable[[Mapping[str, Any], str], Reasoning | None]
"""From a message and its place to what was thought before it."""
CALLS_ALONE: dict[str, Any] = {"role": "assistant", "content": ""}
"""Stands for the words of an assistant that said none after its calls."""


def folded(
    items: Sequence[Any], where: str, thought: Thought = lambda item, here: None
) -> tuple[list[Any], Rounds]:
    """Return (messages without calls and results, what was called before a message by its place).

    Takes OpenAI's form: an assistant's `tool_calls` and the messages of role `tool` that answer
    them, by `tool_call_id` or, where a log lost those, in the calls' order. Calls need no results.
    Where no words of the assistant follow, `CALLS_ALONE` stands for them. Raises DataError for a
    result without a call.
    """
    out: list[Any] = []
    rounds: Rounds = {}
    pending: list[ToolRound] = []

    def end(words: Any) -> None:
        rounds[len(out)] = tuple(pending)
        pending.clear()
        out.append(words)

    for index, item in enumerate(items):
        here = f"{where}[{index}]"
        role = _role(item)
        if role == "tool" and isinstance(item, dict):
            _answer(pending, item, here)
        elif role in ASSISTANTS and item.get("tool_calls"):
            pending.append(_round(item, here, thought(item, here)))
        elif pending and role in ASSISTANTS:
            end(item)
        else:
            if pending:
                end(CALLS_ALONE)
            out.append(item)
    if pending:
        end(CALLS_ALONE)
    return out, rounds


def _role(item: Any) -> str:
    return str(item.get("role", item.get("from"))).lower() if isinstance(item, dict) else ""


def _round(item: Mapping[str, Any], where: str, reasoning: Reasoning | None) -> ToolRound:
    content = item.get("content") or ""
    if not isinstance(content, str):
        raise DataError(f"{where}: content beside calls is {type(content).__name__}; expected text")
    try:
        calls = [_call(one, number) for number, one in enumerate(item["tool_calls"])]
        if len({call.id for call in calls}) != len(calls):
            raise DataError(f"{where}: tool_calls: found an id twice; expected one each")
        return ToolRound(content=content, reasoning=reasoning, calls=tuple(calls))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise DataError(
            f"{where}: tool_calls: expected [{{id, function: {{name, arguments: JSON text}}}}, …]"
        ) from None


def _call(one: Any, number: int) -> ToolCall:
    """Return a call; some programs write it as JSON text, or its name and arguments beside the id,
    or its arguments as an object."""
    if isinstance(one, str):
        one = orjson.loads(one)
    told = one["function"] if isinstance(one.get("function"), dict) else one
    name = told.get("name") or one["function"]
    arguments = told["arguments"]
    if isinstance(arguments, dict):
        arguments = orjson.dumps(arguments).decode()
    return ToolCall(id=one.get("id") or f"call-{number}", name=name, arguments=arguments)


def _answer(pending: list[ToolRound], item: Mapping[str, Any], where: str) -> None:
    """Put a result to its call: the one it names, else the next that has none."""
    mark, content = item.get("tool_call_id"), item.get("content")
    there = {one.id for one in pending[-1].results} if pending else set()
    calls = pending[-1].calls if pending else ()
    left = [one for one in calls if one.id not in there and mark in (None, "", one.id)]
    if not left:
        raise Unusable(
            f"{where}: found a result of {str(mark)[:60]!r}; expected its call before it",
            "a tool's result without its call",
        )
    call = left[0]
    if not isinstance(content, str):
        raise DataError(f"{where}: content is {type(content).__name__}; expected text")
    try:
        result = ToolResult(id=call.id, name=call.name, content=content)
    except ValidationError:
        raise DataError(f"{where}: content: found {len(content):,} characters; too many") from None
    results = (*pending[-1].results, result)
    pending[-1] = pending[-1].model_copy(update={"results": results})
