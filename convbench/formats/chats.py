"""Read logged conversations: a JSON row to messages with tool calls, reasoning, log-probabilities
and reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import orjson
from pydantic import ValidationError

from convbench.errors import DataError
from convbench.formats.shapes import (
    ASSISTANTS,
    BLOCKS,
    CALLS,
    MESSAGES,
    SAID,
    THOUGHT,
    TOOLS,
    Unusable,
    as_ours,
    extra,
    is_released,
    meant,
)
from convbench.models.replies import token_probs
from convbench.schema import Reasoning, ThinkingBlock, ToolCall, ToolResult, ToolRound
from convbench.schema.example import Split
from convbench.schema.noun import LARGEST
from convbench.schema.token_probs import TokenProbs, wrong


def logged_probs(item: Mapping[str, Any], where: str) -> TokenProbs | None:
    """Return the log-probabilities of an assistant's message; None if it has none.

    Reads `logprobs` as OpenAI's API writes it ({content: [{token, logprob, bytes}, …]}), or a list
    of numbers together with `token_ids`. Raises DataError for anything else.
    """
    found, ids = item.get("logprobs"), item.get("token_ids")
    if found is None:
        return None
    if isinstance(found, list):
        if not isinstance(ids, list) or not all(type(one) is int for one in ids):
            raise DataError(f"{where}: logprobs: found a list; expected token_ids beside it")
        if not all(type(one) in (int, float) for one in found):
            raise DataError(f"{where}: logprobs: expected numbers, or content with token, logprob")
        probs = TokenProbs(tuple(map(float, found)), ids=tuple(ids))
        why = wrong(probs)
        if why:
            raise DataError(f"{where}: logprobs: {why}")
        return probs
    probs_read = token_probs(found)
    if probs_read is None:
        raise DataError(
            f"{where}: logprobs: expected {{content: [{{token, logprob, bytes}}, …]}}, a number of "
            "at most 0 each"
        )
    return probs_read


Rounds = dict[int, tuple[ToolRound, ...]]
Thought = Callable[[Mapping[str, Any], str], Reasoning | None]
"""Function from a message and its place (for errors) to the reasoning before it."""
CALLS_ALONE: dict[str, Any] = {"role": "assistant", "content": ""}
"""Stands for an assistant's message that is missing after its tool calls."""


def folded(
    items: Sequence[Any], where: str, thought: Thought = lambda item, here: None
) -> tuple[list[Any], Rounds]:
    """Return (messages without calls and results, tool rounds before a message by its index).

    Reads OpenAI's form: an assistant's `tool_calls` and the messages of role `tool` that answer
    them, by `tool_call_id` or, if a log lost those, in the calls' order. Calls need no results. If
    no message of the assistant follows, `CALLS_ALONE` is inserted. Raises DataError for malformed
    calls, Unusable for a result without a call.
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
    """Return a tool call. Some programs write it as JSON text, or without the object `function`, or
    its arguments as an object."""
    if isinstance(one, str):
        one = orjson.loads(one)
    told = one["function"] if isinstance(one.get("function"), dict) else one
    name = told.get("name") or one["function"]
    arguments = told["arguments"]
    if isinstance(arguments, dict):
        arguments = orjson.dumps(arguments).decode()
    return ToolCall(id=one.get("id") or f"call-{number}", name=name, arguments=arguments)


def _answer(pending: list[ToolRound], item: Mapping[str, Any], where: str) -> None:
    """Add a result to the pending round: for the call it names, else for the next without one.
    Raises Unusable if there is no such call, DataError for a malformed result."""
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
SPLITS: tuple[str, ...] = get_args(Split)


@dataclass(frozen=True)
class Said:
    """The messages of one logged conversation, with what belongs to each."""

    system: str | None
    messages: tuple[tuple[str, str], ...]
    """(role, text) in order. The role is `user`, `assistant`, or `system` if not at the start."""
    thoughts: Mapping[int, Reasoning]
    """Reasoning of an assistant before a message, by the message's index."""
    rounds: Mapping[int, tuple[ToolRound, ...]]
    """Tool calls of an assistant before a message, by the message's index."""
    probs: Mapping[int, TokenProbs]
    """Log-probabilities of an assistant's message, by the message's index."""
    calls_alone: frozenset[int]
    """Indices of an assistant's empty messages: its turn ended with its calls."""
    pictures: int = 0
    """Number of pictures; each is `[image]` in the text."""


@dataclass(frozen=True)
class Chat:
    """One logged conversation with its reward and question."""

    line: int
    """Line in the file, counted from 1."""
    said: Said
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


def read_chat(row: object, where: str, line: int) -> Chat:
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
    metadata = extra(row, where)
    said = _messages(row, where)
    reward, scores = _reward(row, where)
    split = _text(row, ("split",), where)
    if split is not None and split not in SPLITS:
        raise DataError(f"{where}: split: found {split!r}; expected one of {', '.join(SPLITS)}")
    return Chat(
        line,
        said,
        reward,
        scores,
        example=_text(row, ("example_id", "task_id"), where),
        group=_text(row, ("group", "group_id"), where),
        split=split,  # type: ignore[arg-type]  # checked above
        temperature=_temperature(row, where),
        question=_text(row, ("question",), where),
        choices=_choices(row, where),
        answer=_text(row, ("answer",), where),
        hidden=_hidden(row, where),
        metadata=metadata,
    )


def _hidden(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = row.get("hidden")
    if found is not None and not isinstance(found, dict):
        raise DataError(f"{where}: hidden: found {type(found).__name__}; expected an object")
    return {name: value for name, value in (found or {}).items() if value is not None}


def _messages(row: Mapping[str, Any], where: str) -> Said:
    """Return the messages of a row. Raises DataError, or Unusable if no assistant replies."""
    key = next((k for k in MESSAGES if row.get(k) is not None), None)
    items = row.get(key) if key else None
    if not isinstance(items, list) or not items:
        raise DataError(
            f"{where}: found no messages; expected messages: [{{role, content}}, …] "
            "(or conversations: [{from, value}, …])"
        )
    items, rounds = folded(items, f"{where}: {key}", _thought)
    said = [_message(item, f"{where}: {key}[{index}]") for index, item in enumerate(items)]
    thoughts = {
        index: reasoning
        for index, item in enumerate(items)
        if (reasoning := _thought(item, f"{where}: {key}[{index}]")) is not None
    }
    probs = {
        index: found
        for index, item in enumerate(items)
        if said[index][0] == "assistant"
        and (found := logged_probs(item, f"{where}: {key}[{index}]")) is not None
    }
    system = _text(row, ("system",), where)
    first = len(said)
    while said and said[0][0] == "system":
        text = said.pop(0)[1]
        system = text if system is None else f"{system}\n\n{text}"
    if not any(role == "assistant" for role, _ in said):
        raise Unusable(f"{where}: found no assistant message; expected at least one", NO_REPLY)
    first -= len(said)
    alone = frozenset(i - first for i, item in enumerate(items) if item is CALLS_ALONE)
    thoughts = {index - first: found for index, found in thoughts.items()}
    called = {i - first: found for i, found in rounds.items()}
    return Said(
        system,
        tuple(said),
        thoughts,
        called,
        {i - first: found for i, found in probs.items()},
        alone,
        sum(_is_picture(part) for item in items for part in _parts(item)),
    )


def _thought(item: Mapping[str, Any], where: str) -> Reasoning | None:
    """Return the reasoning in an assistant's message, as other programs write it; None if there is
    none. Raises DataError."""
    if ROLES.get(str(item.get("role", item.get("from"))).lower()) != "assistant":
        return None
    name = next((name for name in THOUGHT if item.get(name) not in (None, "")), None)
    said, blocks = item.get(name) if name else "", item.get(BLOCKS) or ()
    if not isinstance(said, str):
        raise DataError(f"{where}: {name}: found {type(said).__name__}; expected text")
    if not said and not blocks:
        return None
    try:
        found = Reasoning.model_validate({"text": said, "blocks": blocks})
    except ValidationError as error:
        why = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise DataError(f"{where}: {BLOCKS}: {why[:200]}") from None
    if not blocks:
        return found
    shown = "\n".join(b.thinking for b in found.blocks if isinstance(b, ThinkingBlock))
    return found.model_copy(update={"via": "blocks", "text": said or shown})


def _message(item: object, where: str) -> tuple[str, str]:
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
        content = _joined(content, where)
    if content is None:
        raise DataError(f"{where}: found no content{meant(item, SAID)}; expected text")
    if not isinstance(content, str):
        raise DataError(f"{where}: content is {type(content).__name__}; expected text")
    return role, content


def _joined(parts: list[Any], where: str) -> str:
    """Return the text of a content of several parts. Raises DataError for parts of other types than
    text and pictures."""
    for part in parts:
        text = part.get("text") if isinstance(part, dict) else None
        if not isinstance(text, str) and not _is_picture(part):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise DataError(f"{where}: found a part of type {kind!r}; expected text and pictures")
    return "\n".join(IMAGE if _is_picture(part) else part["text"] for part in parts)


def _parts(item: Mapping[str, Any]) -> list[Any]:
    content = item.get("content", item.get("value"))
    return content if isinstance(content, list) else []


def _is_picture(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in PICTURES


def _reward(row: Mapping[str, Any], where: str) -> tuple[float | None, dict[str, float]]:
    """Return (reward or None, scores by name). Rewards of turns are summed. Raises DataError."""
    key = "reward" if row.get("reward") is not None else "rewards"
    value = row.get(key)
    if value is None or value in ([], {}):
        return None, {}
    if isinstance(value, dict):
        scores = {str(k): _number(v, f"{where}: {key}.{k}") for k, v in value.items()}
        main = next((k for k in ("reward", "overall") if k in scores), None)
        if main is None and len(scores) > 1:
            raise DataError(f"{where}: {key}: found {', '.join(scores)}; name one of them `reward`")
        return scores[main] if main else min(scores.values()), scores
    if isinstance(value, list):
        numbers = [_number(v, f"{where}: {key}[{i}]") for i, v in enumerate(value)]
        return _number(math.fsum(numbers), f"{where}: {key}: the sum"), {}
    return _number(value, f"{where}: {key}"), {}


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise DataError(f"{where}: found {value!r:.60}; expected a number of at most {LARGEST:g}")
    return float(value)


def _temperature(row: Mapping[str, Any], where: str) -> float | None:
    value = row.get("temperature")
    if value is None:
        return None
    number = _number(value, f"{where}: temperature")
    if number < 0:
        raise DataError(f"{where}: temperature: found {number}; expected 0 or more")
    return number


def _text(row: Mapping[str, Any], names: tuple[str, ...], where: str) -> str | None:
    name = next((n for n in names if row.get(n) is not None), None)
    if name is None:
        return None
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{where}: {name}: found {type(value).__name__}; expected text")
    return str(value)


def _choices(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    value = row.get("choices") or []
    if isinstance(value, dict):
        value = value.get("text")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{where}: choices: expected a list of texts")
    if len(value) > 26:
        raise DataError(f"{where}: choices: found {len(value)}; expected at most 26")
    return tuple(value)
