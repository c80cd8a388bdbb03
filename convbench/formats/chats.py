"""Read logged conversations: a JSON row to messages with tool calls, reasoning, log-probabilities
and reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from pydantic import ValidationError

from convbench.errors import DataError
from convbench.formats.shapes import (
    ASSISTANTS,
    BLOCKS,
    CALLS,
    MESSAGE_KEYS,
    MESSAGES,
    TOOLS,
    Unusable,
    as_ours,
    extra_metadata,
    is_released,
    slip_hint,
)
from convbench.schema import Reasoning, ThinkingBlock, ToolCall, ToolResult, ToolRound
from convbench.schema.base import LARGEST_SCORE
from convbench.schema.task import SPLITS, Split
from convbench.views import THOUGHT_KEYS

Rounds = dict[int, tuple[ToolRound, ...]]
CALLS_ALONE: dict[str, Any] = {"role": "assistant", "content": ""}
"""Stands for an assistant's message that is missing after its tool calls."""


def fold_tool_calls(items: Sequence[Any], where: str) -> tuple[list[Any], Rounds]:
    """Return (messages without calls and results, tool rounds before a message by its index in that
    list).

    Reads OpenAI's form: an assistant's `tool_calls` and the messages of role `tool` that answer
    them, by `tool_call_id` or, if a log lost those, in the calls' order. Calls need no results. If
    no message of the assistant follows, `CALLS_ALONE` is inserted. Raise DataError for malformed
    calls, Unusable for a result without a call.
    """
    out: list[Any] = []
    rounds: Rounds = {}
    pending: list[ToolRound] = []

    def end_round(words: Any) -> None:
        rounds[len(out)] = tuple(pending)
        pending.clear()
        out.append(words)

    for index, item in enumerate(items):
        here = f"{where}[{index}]"
        role = _message_role(item)
        if role == "tool" and isinstance(item, dict):
            _add_tool_result(pending, item, here)
        elif role in ASSISTANTS and item.get("tool_calls"):
            pending.append(_tool_round(item, here, _read_thought(item, here)))
        elif pending and role in ASSISTANTS:
            end_round(item)
        else:
            if pending:
                end_round(CALLS_ALONE)
            out.append(item)
    if pending:
        end_round(CALLS_ALONE)
    return out, rounds


def _message_role(item: Any) -> str:
    return str(item.get("role", item.get("from"))).lower() if isinstance(item, dict) else ""


def _tool_round(item: Mapping[str, Any], where: str, reasoning: Reasoning | None) -> ToolRound:
    content = item.get("content") or ""
    if not isinstance(content, str):
        raise DataError(f"{where}: content with calls is {type(content).__name__}; expected text")
    try:
        calls = [_tool_call(raw_call, number) for number, raw_call in enumerate(item["tool_calls"])]
        if len({call.id for call in calls}) != len(calls):
            raise DataError(f"{where}: tool_calls: found an id twice; expected one each")
        return ToolRound(content=content, reasoning=reasoning, calls=tuple(calls))
    except (KeyError, TypeError, AttributeError, ValueError):
        raise DataError(
            f"{where}: tool_calls: expected [{{id, function: {{name, arguments: JSON text}}}}, …]"
        ) from None


def _tool_call(raw_call: Any, number: int) -> ToolCall:
    """Return a tool call. Some programs write it as JSON text, or without the object `function`, or
    its arguments as an object."""
    if isinstance(raw_call, str):
        raw_call = orjson.loads(raw_call)
    function = raw_call["function"] if isinstance(raw_call.get("function"), dict) else raw_call
    name = function.get("name") or raw_call["function"]
    arguments = function["arguments"]
    if isinstance(arguments, dict):
        arguments = orjson.dumps(arguments).decode()
    return ToolCall(id=raw_call.get("id") or f"call-{number}", name=name, arguments=arguments)


def _add_tool_result(pending: list[ToolRound], item: Mapping[str, Any], where: str) -> None:
    """Add a result to the pending round: for the call it names, else for the next without one.
    Raises Unusable if there is no such call, DataError for a malformed result."""
    mark, content = item.get("tool_call_id"), item.get("content")
    answered = {entry.id for entry in pending[-1].results} if pending else set()
    calls = pending[-1].calls if pending else ()
    left = [entry for entry in calls if entry.id not in answered and mark in (None, "", entry.id)]
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


ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    **dict.fromkeys(ASSISTANTS, "assistant"),
}
"""Our role by the names in use (OpenAI, ShareGPT and others)."""
PICTURES = ("image_url", "image", "input_image")
"""Types of content parts that are pictures, by the names in use."""
IMAGE = "[image]"
"""Stands for a picture in a text."""
NO_REPLY = "no reply"
"""Reason to leave out a row in which no assistant says or calls anything."""


@dataclass(frozen=True)
class LoggedDialogue:
    """The messages of one logged conversation, with what belongs to each."""

    system: str | None
    messages: tuple[tuple[str, str], ...]
    """(role, text) in order. The role is `user`, `assistant`, or `system` if not at the start."""
    thoughts: Mapping[int, Reasoning]
    """Reasoning of an assistant before a message, by the message's index."""
    rounds: Mapping[int, tuple[ToolRound, ...]]
    """Tool calls of an assistant before a message, by the message's index."""
    calls_alone: frozenset[int]
    """Indices of an assistant's empty messages: its turn ended with its calls."""
    pictures: int = 0
    """Number of pictures; each is `[image]` in the text."""


@dataclass(frozen=True)
class LoggedChat:
    """One logged conversation with its reward and question."""

    line: int
    """Line in the file, counted from 1."""
    dialogue: LoggedDialogue
    """Its messages."""
    reward: float | None
    scores: Mapping[str, float]
    """All named rewards."""
    example: str | None
    """Id of the question, if the row has one."""
    group: str | None
    """Id of the independent unit, if the row has one."""
    split: Split | None
    temperature: float | None
    question: str | None
    choices: tuple[str, ...]
    answer: str | None
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the policy did not see, e.g. the reference."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """All other keys of the row."""


def read_chat(row: object, where: str, line: int) -> LoggedChat:
    """Return the conversation of one row. Raises DataError naming place and field.

    Known keys: `messages` (role, content) or `conversations` (from, value); `system`; `reward`
    or `rewards` (a number, a list of turns' rewards, which is summed, or a mapping);
    `example_id` or `task_id`; `group` or `group_id`; `split`; `temperature`; `question`;
    `choices`; `answer`; `hidden` (an object); `metadata`. Others are stored as metadata; one that
    looks like a misspelt key is refused. Rows as released by ColBench's authors are read too
    (`formats.shapes`).
    """
    if not isinstance(row, dict):
        raise DataError(f"{where}: found {type(row).__name__}; expected an object with messages")
    if is_released(row):
        row = as_ours(row, where)
    metadata = extra_metadata(row, where)
    dialogue = _read_dialogue(row, where)
    reward, scores = _read_reward(row, where)
    split = _read_text(row, ("split",), where)
    if split is not None and split not in SPLITS:
        raise DataError(f"{where}: split: found {split!r}; expected one of {', '.join(SPLITS)}")
    return LoggedChat(
        line,
        dialogue,
        reward,
        scores,
        example=_read_text(row, ("example_id", "task_id"), where),
        group=_read_text(row, ("group", "group_id"), where),
        split=split,
        temperature=_read_temperature(row, where),
        question=_read_text(row, ("question",), where),
        choices=_read_choices(row, where),
        answer=_read_text(row, ("answer",), where),
        hidden=_hidden_fields(row, where),
        metadata=metadata,
    )


def _hidden_fields(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    hidden = row.get("hidden")
    if hidden is not None and not isinstance(hidden, dict):
        raise DataError(f"{where}: hidden: found {type(hidden).__name__}; expected an object")
    return {name: value for name, value in (hidden or {}).items() if value is not None}


def _read_dialogue(row: Mapping[str, Any], where: str) -> LoggedDialogue:
    """Return the messages of a row. Raises DataError, or Unusable if no assistant replies."""
    key = next((k for k in MESSAGES if row.get(k) is not None), None)
    items = row.get(key) if key else None
    if not isinstance(items, list) or not items:
        raise DataError(
            f"{where}: found no messages; expected messages: [{{role, content}}, …] "
            "(or conversations: [{from, value}, …])"
        )
    items, rounds = fold_tool_calls(items, f"{where}: {key}")
    messages = [_read_message(item, f"{where}: {key}[{index}]") for index, item in enumerate(items)]
    thoughts = {
        index: reasoning
        for index, item in enumerate(items)
        if (reasoning := _read_thought(item, f"{where}: {key}[{index}]")) is not None
    }
    system = _read_text(row, ("system",), where)
    first = len(messages)
    while messages and messages[0][0] == "system":
        text = messages.pop(0)[1]
        system = text if system is None else f"{system}\n\n{text}"
    if not any(role == "assistant" for role, _ in messages):
        raise Unusable(f"{where}: found no assistant message; expected at least one", NO_REPLY)
    first -= len(messages)
    calls_alone = frozenset(i - first for i, item in enumerate(items) if item is CALLS_ALONE)
    thoughts = {index - first: value for index, value in thoughts.items()}
    called = {i - first: value for i, value in rounds.items()}
    return LoggedDialogue(
        system,
        tuple(messages),
        thoughts,
        called,
        calls_alone,
        sum(_is_picture(part) for item in items for part in _content_parts(item)),
    )


def _read_thought(item: Mapping[str, Any], where: str) -> Reasoning | None:
    """Return the reasoning in an assistant's message, as other programs write it; None if there is
    none. Raises DataError."""
    if ROLES.get(str(item.get("role", item.get("from"))).lower()) != "assistant":
        return None
    name = next((name for name in THOUGHT_KEYS if item.get(name) not in (None, "")), None)
    text, blocks = item.get(name) if name else "", item.get(BLOCKS) or ()
    if not isinstance(text, str):
        raise DataError(f"{where}: {name}: found {type(text).__name__}; expected text")
    if not text and not blocks:
        return None
    try:
        reasoning = Reasoning.model_validate({"text": text, "blocks": blocks})
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DataError(f"{where}: {BLOCKS}: {why[:200]}") from None
    if not blocks:
        return reasoning
    shown = "\n".join(b.thinking for b in reasoning.blocks if isinstance(b, ThinkingBlock))
    return reasoning.model_copy(update={"via": "blocks", "text": text or shown})


def _read_message(item: object, where: str) -> tuple[str, str]:
    if not isinstance(item, dict):
        raise DataError(f"{where}: found {type(item).__name__}; expected {{role, content}}")
    name = item.get("role", item.get("from"))
    role = ROLES.get(str(name).lower())
    if str(name).lower() in TOOLS or any(item.get(key) for key in CALLS):
        raise DataError(
            f"{where}: found a tool's message or a call of one in a form that is not read; "
            "expected OpenAI's tool_calls and messages of role tool with tool_call_id"
        )
    if role is None:
        raise DataError(f"{where}: role {name!r}; expected system, user or assistant")
    content = item.get("content", item.get("value"))
    if isinstance(content, list):
        content = _join_parts(content, where)
    if content is None:
        raise DataError(f"{where}: found no content{slip_hint(item, MESSAGE_KEYS)}; expected text")
    if not isinstance(content, str):
        raise DataError(f"{where}: content is {type(content).__name__}; expected text")
    return role, content


def _join_parts(parts: list[Any], where: str) -> str:
    """Return the text of a content of several parts. Raises DataError for parts of other types than
    text and pictures."""
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str) and not _is_picture(part):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise DataError(f"{where}: found a part of type {kind!r}; expected text and pictures")
    return "\n".join(IMAGE if _is_picture(part) else part["text"] for part in parts)


def _content_parts(item: Mapping[str, Any]) -> list[Any]:
    content = item.get("content", item.get("value"))
    return content if isinstance(content, list) else []


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in PICTURES


def _read_reward(row: Mapping[str, Any], where: str) -> tuple[float | None, dict[str, float]]:
    """Return (reward or None, scores by name). Rewards of turns are summed. Raises DataError."""
    key = "reward" if row.get("reward") is not None else "rewards"
    value = row.get(key)
    if value is None or value in ([], {}):
        return None, {}
    if isinstance(value, dict):
        scores = {str(k): _read_number(v, f"{where}: {key}.{k}") for k, v in value.items()}
        main = next((k for k in ("reward", "overall") if k in scores), None)
        if main is None and len(scores) > 1:
            raise DataError(f"{where}: {key}: found {', '.join(scores)}; name one of them `reward`")
        return scores[main] if main else min(scores.values()), scores
    if isinstance(value, list):
        numbers = [_read_number(v, f"{where}: {key}[{i}]") for i, v in enumerate(value)]
        return _read_number(math.fsum(numbers), f"{where}: {key}: the sum"), {}
    return _read_number(value, f"{where}: {key}"), {}


def _read_number(value: object, where: str) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not abs(value) <= LARGEST_SCORE
    ):
        raise DataError(
            f"{where}: found {value!r:.60}; expected a number of at most {LARGEST_SCORE:g}"
        )
    return float(value)


def _read_temperature(row: Mapping[str, Any], where: str) -> float | None:
    value = row.get("temperature")
    if value is None:
        return None
    number = _read_number(value, f"{where}: temperature")
    if number < 0:
        raise DataError(f"{where}: temperature: found {number}; expected 0 or more")
    return number


def _read_text(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> str | None:
    name = next((n for n in names if row.get(n) is not None), None)
    if name is None:
        return None
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{where}: {name}: found {type(value).__name__}; expected text")
    return str(value)


def _read_choices(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    value = row.get("choices") or []
    if isinstance(value, dict):
        value = value.get("text")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{where}: choices: expected a list of texts")
    if len(value) > 26:
        raise DataError(f"{where}: choices: found {len(value)}; expected at most 26")
    return tuple(value)
