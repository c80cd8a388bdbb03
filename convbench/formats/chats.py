"""Logged conversations from elsewhere: one line of JSON to messages, reward and the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from pydantic import ValidationError

from convbench.errors import DataError
from convbench.formats.called import CALLS_ALONE, folded
from convbench.formats.extra import (
    ASSISTANTS,
    BLOCKS,
    CALLS,
    MESSAGES,
    SAID,
    THOUGHT,
    TOOLS,
    Unusable,
    extra,
    meant,
)
from convbench.formats.probs import logged_probs
from convbench.formats.released import as_ours, is_released
from convbench.schema import Reasoning, ThinkingBlock, ToolRound
from convbench.schema.example import Split
from convbench.schema.noun import LARGEST
from convbench.schema.token_probs import TokenProbs

ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user", "prompter": "user",
    **dict.fromkeys(ASSISTANTS, "assistant"),
}  # fmt: skip
"""Who speaks, by the names in use (OpenAI, ShareGPT and others)."""
PICTURES = ("image_url", "image", "input_image")
"""Types of parts that are pictures, by the names in use."""
IMAGE = "[image]"
"""What stands for a picture in a text."""
NO_REPLY = "no reply"
"""Why a row is left out in which no assistant says or calls anything."""
SPLITS: tuple[str, ...] = get_args(Split)


@dataclass(frozen=True)
class Said:
    """What was said in one logged conversation."""

    system: str | None
    messages: tuple[tuple[str, str], ...]
    """(`user`, `assistant`, or `system` behind others; text), in order."""
    thoughts: Mapping[int, Reasoning]
    """What an assistant thought before a message, by the message's place."""
    rounds: Mapping[int, tuple[ToolRound, ...]]
    """What an assistant called of tools before a message, by the message's place."""
    probs: Mapping[int, TokenProbs]
    """Log-probabilities of an assistant's message, by the message's place."""
    calls_alone: frozenset[int]
    """Places of an assistant's messages that hold no words: its turn ended with its calls."""
    pictures: int = 0
    """How many parts are pictures; each stands in the text as `[image]`."""


@dataclass(frozen=True)
class Chat:
    """One logged conversation."""

    line: int
    """Line in the file, from 1."""
    said: Said
    """Its messages."""
    reward: float | None
    scores: Mapping[str, float]
    """All named rewards."""
    example: str | None
    """Id of the question, where the row has one."""
    group: str | None
    """Id of the independent unit, where the row has one."""
    split: Split | None
    temperature: float | None
    question: str | None
    choices: tuple[str, ...]
    answer: str | None
    hidden: Mapping[str, Any] = field(default_factory=dict)
    """What the policy did not see: the reference and the like."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """All else that the row says, by its own keys."""


def read_chat(row: object, where: str, line: int) -> Chat:
    """Return the conversation of one row. Raises DataError that names place and field.

    Known keys: `messages` (role, content) or `conversations` (from, value); `system`; `reward`
    or `rewards` (a number, a list of turns' rewards, which is summed, or a mapping);
    `example_id` or `task_id`; `group` or `group_id`; `split`; `temperature`; `question`;
    `choices`; `answer`; `hidden` (an object); `metadata`. Others are kept as metadata, unless they
    look like a slip. Rows as ColBench's authors release them are read too (`formats.released`).
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
        line, said, reward, scores,
        example=_text(row, ("example_id", "task_id"), where),
        group=_text(row, ("group", "group_id"), where),
        split=split,  # type: ignore[arg-type]  # checked above
        temperature=_temperature(row, where),
        question=_text(row, ("question",), where),
        choices=_choices(row, where),
        answer=_text(row, ("answer",), where),
        hidden=_hidden(row, where),
        metadata=metadata,
    )  # fmt: skip


def _hidden(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    found = row.get("hidden")
    if found is not None and not isinstance(found, dict):
        raise DataError(f"{where}: hidden: found {type(found).__name__}; expected an object")
    return {name: value for name, value in (found or {}).items() if value is not None}


def _messages(row: Mapping[str, Any], where: str) -> Said:
    """Return what was said in a row's messages."""
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
    """Return what an assistant thought before a message, as other programs write it."""
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
    """Return the text of a content of several parts."""
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
    """Return (reward, scores by name). Rewards of turns are summed."""
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
