"""How nearly all formats write a message: a role with content, whose parts may be texts, thoughts,
calls, results and pictures (OpenAI, Anthropic, Bedrock, Gemini, OpenTelemetry, Vercel), or an item
of OpenAI's Responses.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from convbench.formats.log import Call, LeftOut, LogMessage, Role

ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "prompter": "user",
    "input": "user",
    **dict.fromkeys(
        [
            "assistant",
            "gpt",
            "chatgpt",
            "bot",
            "model",
            "ai",
            "bard",
            "bing",
            "claude",
            "agent",
            "output",
            "gemini",
        ],
        "assistant",
    ),
    **dict.fromkeys(("function_call", "tool_call", "tool_calls"), "assistant"),
    "system": "system",
    "developer": "system",
    **dict.fromkeys(
        [
            "tool",
            "function",
            "observation",
            "tool_response",
            "tool_result",
            "toolresult",
            "environment",
            "ipython",
        ],
        "tool",
    ),
}
"""Our role by the names in use, in small letters."""
CALL_ROLES = ("function_call", "tool_call", "tool_calls")
"""Roles of messages that are a call."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking")
MASKS = ("weight", "loss", "train", "trainable", "loss_mask", "training")
"""Keys of a message that is not to be learnt if they are 0 or false."""
KNOWN = {
    *("role", "from", "type", "content", "value", "text", "parts", "refusal", "name", "id"),
    *("tool_calls", "function_call", "tool_call_id", "thinking_blocks", "logprobs", "token_ids"),
    *("finish_reason", "stop_reason", "model", "tools", *THOUGHTS, *MASKS),
}
LONGEST_LITERAL = 1 << 20
"""Most characters of a Python literal that are parsed."""


def as_text(value: Any) -> str:
    """Return a text as it is, nothing as an empty text, any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return an object, also one written as JSON text; an empty one for any other value."""
    value = parsed(value)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list, also one written as JSON text; an empty one for any other value."""
    value = parsed(value)
    return value if isinstance(value, list) else []


def parsed(value: Any) -> Any:
    """Return the list or object that a text writes as JSON or as a Python literal; any other value
    unchanged."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    if len(value) > LONGEST_LITERAL:
        return value
    try:  # NumPy writes lists without commas
        read = ast.literal_eval(re.sub(r"\}[ \t]*+\n\s*+\{", "}, {", value.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return value
    return read if isinstance(read, list | dict) else value


def without_nulls(value: Any) -> Any:
    """Return a value without the keys that are null, at every depth: columns of a table have
    them where a row has none."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def as_number(value: Any) -> float | None:
    """Return a finite number, a boolean as 1 or 0, a number written as text; None for another
    value."""
    if isinstance(value, str):
        text = value.strip().lower()
        try:
            value = float({"true": "1", "false": "0"}.get(text, text))
        except ValueError:
            return None
    is_number = isinstance(value, bool | int | float) and -1e100 <= value <= 1e100
    return float(value) if is_number else None


def as_time(value: Any) -> float | None:
    """Return a time as seconds since 1970: ISO 8601, or a number of seconds, milliseconds or
    nanoseconds; None for another value."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value.strip().replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            pass
    number = as_number(value)
    while number is not None and number > 1e11:
        number /= 1000
    return number


def as_role(name: Any) -> Role:
    """Return our role. Raise LeftOut for one that is not known: roles are never guessed."""
    role = ROLES.get(str(name).lower().replace("-", "_"))
    if role is None:
        raise LeftOut(f"role {str(name)[:40]!r}")
    return role


def arguments_text(value: Any) -> str:
    """Return a call's arguments as JSON text of an object; nothing is `{}`, and nulls that a table
    filled in are left out. Raise LeftOut for anything but an object."""
    if value is None or (isinstance(value, str) and value.strip() in ("", "null", "None")):
        return "{}"
    read = parsed(value)
    if not isinstance(read, dict):
        raise LeftOut("a call's arguments are no object")
    if isinstance(value, str) and value.lstrip().startswith('{"'):
        return value
    return json.dumps(without_nulls(read), ensure_ascii=False, default=str)


def as_call(raw: Any) -> Call:
    """Return a call as OpenAI writes it, nested or flat, as an object or as JSON text; and as the
    parts of other formats write it. Raise LeftOut if it has no name."""
    fields = as_mapping(raw)
    inner = next(
        (
            fields[k]
            for k in ("function", "functionCall", "toolUse")
            if isinstance(fields.get(k), dict)
        ),
        fields,
    )
    name = _first(inner, "name", "toolName", "tool_name", "function_name") or fields.get("function")
    if not isinstance(name, str):
        raise LeftOut("a call without the name of a tool")
    given = _first(inner, "arguments", "input", "args", "parameters")
    mark = _first(fields, "id", "call_id", "toolCallId", "tool_call_id")
    mark = mark or _first(inner, "id", "toolUseId", "call_id")
    return Call(name, arguments_text(given), None if mark is None else str(mark))


def _first(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


@dataclass
class Content:
    """What the content of a message holds."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    results: list[LogMessage] = field(default_factory=list)
    pictures: int = 0

    @property
    def text(self) -> str:
        """Return the texts, a line each."""
        return "\n".join(text for text in self.texts if text)

    @property
    def reasoning(self) -> str:
        """Return the thoughts, a line each."""
        return "\n".join(text for text in self.thoughts if text)


def read_content(value: Any) -> Content:
    """Return what a content holds: a text, a part, or a list of parts in any of the dialects.

    Pictures, sounds and files become a mark in the text, and so does a part of an unknown type.
    """
    content = Content()
    for part in value if isinstance(value, list) else [] if value is None else [value]:
        if isinstance(part, dict):
            _read_part(content, part)
        else:
            content.texts.append(as_text(part))
    return content


def _read_part(content: Content, part: dict[str, Any]) -> None:
    kind = re.sub(r"[^a-z]", "", str(part.get("type") or "").lower())
    call = next(
        (part[k] for k in ("toolUse", "functionCall", "function_call") if part.get(k)), None
    )
    reply = next(
        (part[k] for k in ("toolResult", "functionResponse", "function_response") if part.get(k)),
        None,
    )
    thought = as_mapping(as_mapping(part.get("reasoningContent")).get("reasoningText"))
    if isinstance(call, dict):
        content.calls.append(as_call(call))
    elif isinstance(reply, dict):
        content.results.append(_result(reply))
    elif thought:
        content.thoughts.append(as_text(thought.get("text")))
    elif kind in ("thinking", "reasoning", "redactedthinking", "think"):
        content.thoughts.append(_said(part, "thinking", "reasoning", "text", "content", "summary"))
        if kind == "redactedthinking" or part.get("signature"):
            keys = ("type", "thinking", "signature", "data")
            content.blocks.append({k: part[k] for k in keys if part.get(k) is not None})
    elif kind.endswith(("tooluse", "toolcall", "functioncall")):
        content.calls.append(as_call(part))
        if part.get("result") is not None:  # called where the model runs
            content.results.append(_result(part))
    elif kind.endswith(("toolresult", "toolcallresponse", "functioncalloutput")):
        content.results.append(_result(part))
    elif part.get("thought") is True:
        content.thoughts.append(as_text(part.get("text")))
    elif kind in ("", "text", "inputtext", "outputtext", "summarytext", "refusal"):
        content.texts.append(_said(part, "text", "content", "refusal", "value"))
    elif isinstance(as_mapping(part.get("source")).get("data"), str) and kind == "document":
        content.texts.append(part["source"]["data"])
    else:
        content.texts.append("[image]" if "image" in kind else f"[{kind}]")
        content.pictures += 1


def _said(part: Mapping[str, Any], *names: str) -> str:
    value = _first(part, *names)
    return read_content(value).text if isinstance(value, list | dict) else as_text(value)


def _result(part: Mapping[str, Any]) -> LogMessage:
    """Return the result of a call that stands in a content."""
    value = _first(part, "content", "output", "result", "response")
    marks = ("tool_use_id", "toolUseId", "toolCallId", "tool_call_id", "call_id", "id")
    mark = _first(part, *marks, "mcp_tool_use_id")
    name = _first(part, "name", "toolName", "tool_name")
    error = bool(part.get("is_error") or part.get("isError") or part.get("status") == "error")
    message = result_message(value, None if mark is None else str(mark), error=error)
    message.name = name if isinstance(name, str) else None
    return message


def result_message(value: Any, mark: str | None, *, error: bool = False) -> LogMessage:
    """Return a tool's result from its content: text, parts, or any other value as JSON."""
    is_parts = isinstance(value, list) and all(
        isinstance(part, dict) and ("type" in part or "text" in part) for part in value
    )
    content = read_content(value) if is_parts else Content([as_text(value)])
    return LogMessage("tool", content.text, call_id=mark, error=error, pictures=content.pictures)


def read_message(item: Mapping[str, Any], **more: Any) -> list[LogMessage]:
    """Return the messages that one item of a chat is: what was said with its calls, and a message
    for each result in its content.

    `more` are fields of the message that its source says elsewhere. Raise LeftOut for an unknown
    role, or a call that cannot be read.
    """
    name = str(_first(item, "role", "from", "type"))
    role = as_role(name)
    value = _first(item, "content", "value", "text", "parts")
    if role == "tool" and not _is_results(value):
        mark = _first(item, "tool_call_id", "toolCallId", "call_id") or next(
            iter(as_list(item.get("tool_call_ids"))), None
        )
        message = result_message(value, None if mark is None else str(mark))
        message.error = bool(item.get("isError") or item.get("error"))
        name = _first(item, "name", "toolName")
        message.name = name if isinstance(name, str) else None
        return [message]
    if name.lower() in CALL_ROLES:
        calls = parsed(value)
        return [
            LogMessage(
                "assistant",
                calls=[as_call(raw) for raw in (calls if isinstance(calls, list) else [calls])],
                context=_is_masked(item),
                **more,
            )
        ]
    content = read_content(value)
    text = content.text or as_text(item.get("refusal"))
    thought = next((as_text(item[k]) for k in THOUGHTS if item.get(k)), "") or content.reasoning
    calls = [as_call(raw) for raw in as_list(item.get("tool_calls"))]
    if item.get("function_call"):
        calls.append(as_call(item["function_call"]))
    blocks = [b for b in as_list(item.get("thinking_blocks")) if isinstance(b, dict)]
    said = LogMessage(
        role,
        text,
        thought if role == "assistant" else "",
        calls + content.calls,
        blocks=blocks + content.blocks,
        pictures=content.pictures,
        finish=item.get("finish_reason") or item.get("stop_reason"),
        context=_is_masked(item),
        extra={k: v for k, v in item.items() if k not in KNOWN and v not in (None, "", [], {})},
    )
    said.name = item["name"] if isinstance(item.get("name"), str) else None
    said.model = item["model"] if isinstance(item.get("model"), str) else None
    for key, setting in more.items():
        setattr(said, key, setting)
    only_results = content.results and not (text or said.calls or thought or said.pictures)
    return ([] if only_results else [said]) + content.results


def _is_results(value: Any) -> bool:
    return isinstance(value, list) and bool(read_content(value).results)


def _is_masked(item: Mapping[str, Any]) -> bool:
    return any(as_number(item[key]) == 0 for key in MASKS if item.get(key) is not None)


def response_items(items: Sequence[Any], **more: Any) -> list[LogMessage]:
    """Return the messages of items of OpenAI's Responses, in order; items of other kinds, such as
    a search that the provider ran, are calls without arguments that can be read."""
    out: list[LogMessage] = []
    for item in items:
        kind = item.get("type", "message")
        mark = item.get("call_id") or item.get("id")
        if kind == "message" or "role" in item:
            out += read_message(item | {"type": "message"}, **more)
        elif kind == "reasoning":
            thought = read_content(item.get("summary") or item.get("content")).text
            out += [LogMessage("assistant", reasoning=thought, **more)] if thought else []
        elif kind.endswith("_call_output") or kind.endswith("_output"):
            out.append(result_message(_unwrapped(item.get("output")), mark))
        elif kind.endswith("_call"):
            given = _first(item, "arguments", "action", "input")
            whole = isinstance(parsed(given), dict) or given in (None, "")
            text = arguments_text(given if whole else {"input": given})
            call = Call(str(item.get("name") or kind.removesuffix("_call")), text, mark)
            out.append(LogMessage("assistant", calls=[call], **more))
            if item.get("output") is not None or item.get("result") is not None:
                out.append(result_message(_first(item, "output", "result"), mark))
    return out


def _unwrapped(output: Any) -> Any:
    """Return the output in Codex' envelope `{output, metadata}`; anything else unchanged."""
    inside = as_mapping(output)
    return inside["output"] if {"output", "metadata"} == inside.keys() else output
