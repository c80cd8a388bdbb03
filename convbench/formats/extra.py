"""What a row of logs says beside what is known: kept, unless it looks like a slip of the pen."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.store.shape import deeper

MESSAGES = ("messages", "conversations", "conversation")
SAME: tuple[tuple[str, ...], ...] = (
    MESSAGES, ("reward", "rewards"), ("example_id", "task_id"), ("group", "group_id"),
)  # fmt: skip
"""Names of one thing: a row has one of them."""
KNOWN = {name for names in SAME for name in names} | {
    "system", "split", "temperature", "question", "choices", "answer", "hidden", "metadata",
}  # fmt: skip
"""Keys of a row."""
SAID = {"role", "from", "content", "value"}
"""Keys of a message."""
THOUGHT = ("reasoning_content", "reasoning", "thinking")
"""Names of what an assistant thought before a message, a text; the first that is there counts."""
BLOCKS = "thinking_blocks"
"""Name of a provider's own blocks of it."""
PROBS = ("logprobs", "token_ids")
"""Keys of an assistant's message: log-probabilities of its tokens, and which these are."""
TOOLS = {"tool", "function", "ipython", "function_call", "observation"}
"""Roles of tools."""
CALLS = ("tool_calls", "function_call", "tool_call_id")
"""Keys of messages that call tools or answer such calls."""
ASSISTANTS = ("assistant", "gpt", "model", "chatgpt", "bot")
"""Roles of who thinks."""
FIELDS = "message_fields"
"""Key of the metadata that holds what messages have beside role and content, one each."""
DEEPEST = 32
"""Levels of a row's values."""
NEAR = 0.8
"""How alike (difflib's ratio) an unknown key and a known one are where it is a slip."""


class Unusable(DataError):
    """A row that nothing can be made of, through no slip of whoever wrote the file: an import
    leaves it out, and counts it by `reason`."""

    def __init__(self, line: str, reason: str) -> None:
        super().__init__(line)
        self.reason = reason


def extra(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return all that a row says beside the known keys. Raises DataError for a key that looks
    like a known one, and for two names of one thing."""
    for names in SAME:
        said = [name for name in names if row.get(name) is not None]
        if len(said) > 1:
            raise DataError(f"{where}: found {' and '.join(said)}; expected one of them")
    found = _metadata(row.get("metadata"), where)
    found |= _unknown(row, KNOWN, where)
    items: list[object] = next(
        (row[name] for name in MESSAGES if isinstance(row.get(name), list)), []
    )
    fields = [_fields(item, f"{where}: messages[{i}]") for i, item in enumerate(items)]
    if any(fields):
        found[FIELDS] = fields
    refuse_deep({"metadata": found}, where)
    return found


def refuse_deep(row: Mapping[str, Any], where: str) -> None:
    """Raise DataError for a value of a row that is nested too deeply to be written and read."""
    for key, value in row.items():
        if deeper(value, DEEPEST):
            raise DataError(f"{where}: {key}: found more than {DEEPEST} levels; expected fewer")


def meant(row: Mapping[str, Any], known: Collection[str]) -> str:
    """Say which known key one of the row's looks like."""
    for key in row:
        near = difflib.get_close_matches(str(key), known, 1, NEAR)
        if near and key not in known:
            return f" (found {key!r}; did you mean {near[0]!r}?)"
    return ""


def _unknown(row: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
    slip = meant(row, known)
    if slip:
        raise DataError(f"{where}: found an unknown key{slip}; if not, keep it under metadata")
    return {key: value for key, value in row.items() if key not in known and value is not None}


def _fields(item: object, where: str) -> dict[str, Any]:
    """What a message has beside role and content; what is no message is refused elsewhere."""
    if not isinstance(item, dict) or any(item.get(key) for key in CALLS):
        return {}
    if item.get("content", item.get("value")) is None:
        return {}
    own = str(item.get("role", item.get("from"))).lower() in ASSISTANTS
    found = _unknown(item, SAID | {*THOUGHT, BLOCKS, *PROBS} if own else SAID, where)
    return {key: value for key, value in found.items() if value not in ("", [], {})}


def _metadata(value: object, where: str) -> dict[str, Any]:
    """The row's own metadata: an object, or the JSON text of one, as exports write it."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise DataError(f"{where}: metadata: found text; expected an object") from None
    if value is not None and not isinstance(value, dict):
        raise DataError(f"{where}: metadata: found {type(value).__name__}; expected an object")
    found = dict(value or {})
    fields = found.get(FIELDS, [])
    if not isinstance(fields, list) or not all(isinstance(item, dict) for item in fields):
        raise DataError(f"{where}: metadata.{FIELDS}: expected a list of objects, one per message")
    return found
