"""Rows of other trainers' sets as conversations: what TRL, OpenAI and spreadsheets write.

TRL's formats (its documentation, "Dataset formats and types"): `messages`; `prompt` and
`completion`, texts or messages, with KTO's `label`; `chosen` and `rejected`, with or without
`prompt`. OpenAI's preferences (its guide to direct preference optimization): `input` with the
`messages` before, `preferred_output` and `non_preferred_output`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.formats.extra import MESSAGES
from convbench.hub.rows import read_json

NUMBERS = ("reward", "temperature")
"""Fields that a spreadsheet writes as text."""
LISTS = (*MESSAGES, "prompt", "completion", "chosen", "rejected", "choices", "tools",
         "input", "preferred_output", "non_preferred_output")  # fmt: skip
"""Fields that a spreadsheet writes as JSON text."""


def renamed(row: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return a row with fields under the names that are known here. `names` maps ours to the
    row's, `a.b` reaches into an object. Raises DataError for a field the row does not have."""
    found = dict(row)
    for ours, theirs in names.items():
        value: Any = row
        for part in theirs.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise DataError(
                    f"{where}: --map {ours}={theirs}: found no {part!r}; expected one of "
                    f"{', '.join(map(str, value)) if isinstance(value, Mapping) else 'none'}"
                )
            value = value[part]
        if "." not in theirs:
            found.pop(theirs, None)
        found[ours] = value
    return found


def from_text(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a spreadsheet's row with numbers and lists read, and without its empty cells."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        if value is None or value == "":
            continue
        found[key] = value
        if not isinstance(value, str):
            continue
        if key in NUMBERS:
            found[key] = _number(value, f"{where}: {key}")
        elif key == "label" and value.lower() in ("true", "false"):
            found[key] = value.lower() == "true"
        elif key in LISTS and value.lstrip()[:1] in ("[", "{"):
            found[key] = read_json(value, f"{where}: {key}")
    return found


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{where}: found {text[:60]!r}; expected a number") from None


def chats_of(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield the conversations of a row: itself, or what its `prompt`, `completion`, `chosen` and
    `rejected` make. A preferred answer has reward 1, the other 0."""
    if any(row.get(name) is not None for name in MESSAGES):
        yield dict(row)
    elif "chosen" in row and "rejected" in row:
        yield from _preference(row, where)
    elif "preferred_output" in row and "non_preferred_output" in row:
        yield from _preference(_as_trl(row, where), where)
    elif "prompt" in row and "completion" in row:
        yield _completion(row, where)
    else:
        yield dict(row)  # whose messages are missed by name


def _completion(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`prompt` and `completion`; KTO's `label` says whether it is a good one."""
    rest = _without(row, "prompt", "completion")
    said = _messages(row["prompt"], "user", f"{where}: prompt")
    said += _messages(row["completion"], "assistant", f"{where}: completion")
    if row.get("label") is not None:
        rest |= _labelled(row, where)
        if isinstance(row["label"], bool):
            rest.pop("label")
    return {**rest, "messages": said}


def _labelled(row: Mapping[str, Any], where: str) -> dict[str, float]:
    """Return the reward of a label; none where the row has a reward, and its label is a note."""
    label, rewarded = row["label"], row.get("reward") is not None
    if not isinstance(label, bool):
        if rewarded:
            return {}
        raise DataError(f"{where}: label: found {str(label)[:60]!r}; expected true or false")
    if rewarded:
        raise DataError(f"{where}: found label and reward; expected one of them")
    return {"reward": float(label)}


def _preference(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """`chosen` and `rejected`, after `prompt` or whole: two samples of one question."""
    if row.get("reward") is not None:
        raise DataError(f"{where}: found chosen, rejected and reward; a pair has no reward")
    rest = _without(row, "prompt", "chosen", "rejected")
    opening = _messages(row["prompt"], "user", f"{where}: prompt") if row.get("prompt") else []
    sides = {
        name: opening + _messages(row[name], "assistant", f"{where}: {name}")
        for name in ("chosen", "rejected")
    }
    shared = _shared(*sides.values())
    if "example_id" not in rest and "task_id" not in rest:
        said = orjson.dumps(shared, option=orjson.OPT_SORT_KEYS)
        rest["example_id"] = hashlib.sha256(said).hexdigest()[:16]
    for name, reward in (("chosen", 1.0), ("rejected", 0.0)):
        yield {**rest, "messages": sides[name], "reward": reward}


def _as_trl(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return OpenAI's preference under TRL's names."""
    asked = row.get("input")
    if not isinstance(asked, Mapping) or not isinstance(asked.get("messages"), list):
        raise DataError(f"{where}: input: found no messages; expected {{messages: [...]}}")
    rest = _without(row, "input", "preferred_output", "non_preferred_output")
    more = _without(asked, "messages")
    return {
        **{key: value for key, value in more.items() if value not in (None, [])},
        **rest,
        "prompt": asked["messages"],
        "chosen": row["preferred_output"],
        "rejected": row["non_preferred_output"],
    }


def _shared(one: Sequence[Any], two: Sequence[Any]) -> list[Any]:
    """Return the messages that both begin with."""
    found = []
    for first, second in zip(one, two, strict=False):
        if first != second:
            break
        found.append(first)
    return found


def _messages(value: Any, role: str, where: str) -> list[Any]:
    """Return messages, or a text as one message of this role."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return value
    raise DataError(f"{where}: found {type(value).__name__}; expected a text or messages")


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
