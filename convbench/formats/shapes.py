"""Convert rows of other formats (TRL, OpenAI, spreadsheets, ColBench) to conversations, and collect
a row's metadata.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.sources.rows import read_json
from convbench.store.shape import exceeds_depth
from convbench.views import THOUGHT_KEYS

MESSAGES = ("messages", "conversations", "conversation")
SAME: tuple[tuple[str, ...], ...] = (
    MESSAGES,
    ("reward", "rewards"),
    ("example_id", "task_id"),
    ("group", "group_id"),
)
"""Groups of synonymous keys; a row may have only one key of each."""
KNOWN = {name for names in SAME for name in names} | {
    "system",
    "split",
    "temperature",
    "question",
    "choices",
    "answer",
    "hidden",
    "metadata",
}
"""Known keys of a row."""
MESSAGE_KEYS = {"role", "from", "content", "value"}
"""Known keys of a message."""
BLOCKS = "thinking_blocks"
"""Key of a provider's own blocks of reasoning."""
PROBS = ("logprobs", "token_ids")
"""Keys of an assistant's message: log-probabilities of its tokens, and their ids."""
TOOLS = {"tool", "function", "ipython", "function_call", "observation"}
"""Roles of tools."""
CALLS = ("tool_calls", "function_call", "tool_call_id")
"""Keys of messages that call tools or return their results."""
ASSISTANTS = ("assistant", "gpt", "model", "chatgpt", "bot")
"""Names of the assistant's role."""
FIELDS = "message_fields"
"""Key of the metadata that holds further keys of messages, as a list with one object a message."""
DEEPEST = 32
"""Most levels of nesting in a row's values."""
NEAR = 0.8
"""Similarity (difflib's ratio) to a known key from which an unknown key counts as a misspelling."""


class Unusable(DataError):
    """Raised for a row that is well-formed but cannot be used. An import leaves it out, and counts
    it by `reason`."""

    def __init__(self, line: str, reason: str) -> None:
        super().__init__(line)
        self.reason = reason


class MissingField(DataError):
    """Raised for a row without a field that `--map` names; `mapping` is its OURS=THEIRS."""

    def __init__(self, line: str, mapping: str) -> None:
        super().__init__(line)
        self.mapping = mapping


def extra_metadata(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a row's metadata: its own, its unknown keys, and as `message_fields` those of its
    messages, one object a message, if any has some.

    Unknown keys with null values are left out. Raise DataError for a key that looks like a misspelt
    known one, for two synonymous keys, for metadata that is no object, and for values nested too
    deeply.
    """
    for names in SAME:
        present = [name for name in names if row.get(name) is not None]
        if len(present) > 1:
            raise DataError(f"{where}: found {' and '.join(present)}; expected one of them")
    metadata = _read_metadata(row.get("metadata"), where)
    metadata |= _unknown_fields(row, KNOWN, where)
    items: list[object] = next(
        (row[name] for name in MESSAGES if isinstance(row.get(name), list)), []
    )
    fields = [_message_fields(item, f"{where}: messages[{i}]") for i, item in enumerate(items)]
    if any(fields):
        metadata[FIELDS] = fields
    refuse_deep({"metadata": metadata}, where)
    return metadata


def refuse_deep(row: Mapping[str, Any], where: str) -> None:
    """Raise DataError if a value of a row is nested too deeply to be stored."""
    for key, value in row.items():
        if exceeds_depth(value, DEEPEST):
            raise DataError(f"{where}: {key}: found more than {DEEPEST} levels; expected fewer")


def slip_hint(row: Mapping[str, Any], known: Collection[str]) -> str:
    """Return a hint on the first key of the row that looks like a misspelt known one, to end an
    error with, like ` (found 'mesages'; did you mean 'messages'?)`; an empty text without one."""
    for key in row:
        near = difflib.get_close_matches(str(key), known, 1, NEAR)
        if near and key not in known:
            return f" (found {key!r}; did you mean {near[0]!r}?)"
    return ""


def _unknown_fields(row: Mapping[str, Any], known: Collection[str], where: str) -> dict[str, Any]:
    slip = slip_hint(row, known)
    if slip:
        raise DataError(f"{where}: found an unknown key{slip}; if not, keep it under metadata")
    return {key: value for key, value in row.items() if key not in known and value is not None}


def _message_fields(item: object, where: str) -> dict[str, Any]:
    """Return a message's unknown keys; empty for what is not a message, which is refused later."""
    if not isinstance(item, dict) or any(item.get(key) for key in CALLS):
        return {}
    if item.get("content", item.get("value")) is None:
        return {}
    own = str(item.get("role", item.get("from"))).lower() in ASSISTANTS
    fields = _unknown_fields(
        item, MESSAGE_KEYS | {*THOUGHT_KEYS, BLOCKS, *PROBS} if own else MESSAGE_KEYS, where
    )
    return {key: value for key, value in fields.items() if value not in ("", [], {})}


def _read_metadata(value: object, where: str) -> dict[str, Any]:
    """Return the row's own metadata: an object, or the JSON text of one, as exports write it.
    Raises DataError."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise DataError(f"{where}: metadata: found text; expected an object") from None
    if value is not None and not isinstance(value, dict):
        raise DataError(f"{where}: metadata: found {type(value).__name__}; expected an object")
    metadata = dict(value or {})
    fields = metadata.get(FIELDS, [])
    if not isinstance(fields, list) or not all(isinstance(item, dict) for item in fields):
        raise DataError(f"{where}: metadata.{FIELDS}: expected a list of objects, one per message")
    return metadata


HISTORY = "dialogue_history"
HIDDEN = {"ground_truth": "reference", "test_cases": "tests", "hidden_information": "information"}
"""Our name of a hidden field by ColBench's (tasks `colbench-backend`, `colbench-frontend`)."""
_SYSTEM = re.compile(
    r"\A(?:<\|begin_of_text\|>)?<\|start_header_id\|>system<\|end_header_id\|>\s*+"
    r"(?:Cutting Knowledge Date:[^\n]*+\nToday Date:[^\n<]*+\s*+)?(.*?)<\|eot_id\|>",
    re.DOTALL,
)
"""The system prompt in a prompt rendered with Llama 3's template, without the template's own lines.
"""


def is_released(row: Mapping[str, Any]) -> bool:
    """Return whether a row has the format in which ColBench's authors released it: an object `task`
    and a list `dialogue_history`."""
    return isinstance(row.get("task"), dict) and isinstance(row.get(HISTORY), list)


def as_ours(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a row of ColBench's release under our keys: messages, question, hidden, reward (None
    if it has none) and metadata.

    All other keys go to the metadata. User messages at the end, without a reply, are dropped. Raise
    DataError for a row without a request or with a malformed message.
    """
    task = dict(row["task"])
    question = task.pop("problem_description", None)
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{where}: task.problem_description: found none; expected the request")
    hidden = {ours: task.pop(name) for name, ours in HIDDEN.items() if task.get(name) is not None}
    for name, ours in HIDDEN.items():  # some files have it outside the task
        if ours not in hidden and row.get(name) is not None:
            hidden[ours] = row[name]
    known = {"task", HISTORY, "reward", *HIDDEN}
    rest = {key: value for key, value in row.items() if key not in known and value is not None}
    messages = [
        _released_message(item, f"{where}: {HISTORY}[{i}]") for i, item in enumerate(row[HISTORY])
    ]
    while messages and messages[-1]["role"] == "user":  # without a reply
        messages.pop()
    return {
        "messages": [*_system_message(row[HISTORY]), *messages],
        "question": question,
        "hidden": hidden,
        "reward": row.get("reward"),
        "metadata": {**rest, **({"task": task} if task else {})},
    }


def _released_message(item: object, where: str) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("content"), str):
        raise DataError(f"{where}: expected an object with role and content")
    role = {"agent": "assistant", "human": "user"}.get(str(item.get("role")), item.get("role"))
    output = item.get("output")  # with the reasoning before OUTPUT:
    content = output if role == "assistant" and isinstance(output, str) else item["content"]
    return {"role": role, "content": content}


def _system_message(history: list[Any]) -> list[dict[str, Any]]:
    """Return the system message of the first rendered prompt, as a list of one; empty if it has
    none."""
    prompts = (item.get("input") for item in history if isinstance(item, dict))
    first = next((text for text in prompts if isinstance(text, str)), "")
    match = _SYSTEM.match(first[:100_000])
    text = match[1].strip() if match else ""
    return [{"role": "system", "content": text}] if text else []


NUMBERS = ("reward", "temperature")
"""Fields that a spreadsheet writes as text."""
LISTS = (
    *MESSAGES,
    "prompt",
    "completion",
    "chosen",
    "rejected",
    "choices",
    "tools",
    "input",
    "preferred_output",
    "non_preferred_output",
)
"""Fields that a spreadsheet writes as JSON text."""


def rename_fields(row: Mapping[str, Any], names: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return a copy of a row with its fields under our names; other fields stay.

    `names` maps ours to the row's; `a.b` reaches into an object, which then stays too. Raise
    MissingField for a field that the row does not have.
    """
    fields = dict(row)
    for ours, theirs in names.items():
        value: Any = row
        for part in theirs.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise MissingField(
                    f"{where}: --map {ours}={theirs}: found no {part!r}; expected one of "
                    f"{', '.join(map(str, value)) if isinstance(value, Mapping) else 'none'}",
                    f"{ours}={theirs}",
                )
            value = value[part]
        if "." not in theirs:
            fields.pop(theirs, None)
        fields[ours] = value
    return fields


def from_spreadsheet(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a spreadsheet's row without its empty cells, with texts parsed.

    `reward` and `temperature` become numbers, a `label` of true or false a boolean, and JSON lists
    or objects in the fields LISTS (messages, choices, tools and the like) are read. Raise DataError
    for a cell that cannot be parsed.
    """
    fields: dict[str, Any] = {}
    for key, value in row.items():
        if value is None or value == "":
            continue
        fields[key] = value
        if not isinstance(value, str):
            continue
        if key in NUMBERS:
            fields[key] = _parse_number(value, f"{where}: {key}")
        elif key == "label" and value.lower() in ("true", "false"):
            fields[key] = value.lower() == "true"
        elif key in LISTS and value.lstrip()[:1] in ("[", "{"):
            fields[key] = read_json(value, f"{where}: {key}")
    return fields


def _parse_number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{where}: found {text[:60]!r}; expected a number") from None


def chats_of(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield the conversations of a row under our keys: two for a preferred and a rejected answer
    (`chosen`, `rejected`, or OpenAI's keys), else one.

    The preferred one has reward 1, the other 0; both have one `example_id`, derived from their
    common messages if the row has none. For `prompt` and `completion` a boolean `label` is the
    reward (1 or 0). A row in none of these forms is yielded as it is. Raise DataError for a
    malformed row.
    """
    if any(row.get(name) is not None for name in MESSAGES):
        yield dict(row)
    elif "chosen" in row and "rejected" in row:
        yield from _preference_chats(row, where)
    elif "preferred_output" in row and "non_preferred_output" in row:
        yield from _preference_chats(_as_trl(row, where), where)
    elif "prompt" in row and "completion" in row:
        yield _completion_chat(row, where)
    else:
        yield dict(row)  # the reader reports the missing messages


def _completion_chat(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the conversation of `prompt` and `completion`, with KTO's `label` as its reward."""
    rest = _without_keys(row, "prompt", "completion")
    messages = _as_messages(row["prompt"], "user", f"{where}: prompt")
    messages += _as_messages(row["completion"], "assistant", f"{where}: completion")
    if row.get("label") is not None:
        rest |= _label_reward(row, where)
        if isinstance(row["label"], bool):
            rest.pop("label")
    return {**rest, "messages": messages}


def _label_reward(row: Mapping[str, Any], where: str) -> dict[str, float]:
    """Return {reward} of a boolean label; empty if the row has a reward and the label is a note.
    Raises DataError for both, or for another label."""
    label, rewarded = row["label"], row.get("reward") is not None
    if not isinstance(label, bool):
        if rewarded:
            return {}
        raise DataError(f"{where}: label: found {str(label)[:60]!r}; expected true or false")
    if rewarded:
        raise DataError(f"{where}: found label and reward; expected one of them")
    return {"reward": float(label)}


def _preference_chats(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """Yield the conversations of `chosen` and `rejected`, which follow `prompt` or include it: two
    samples of one question."""
    if row.get("reward") is not None:
        raise DataError(f"{where}: found chosen, rejected and reward; a pair has no reward")
    rest = _without_keys(row, "prompt", "chosen", "rejected")
    opening = _as_messages(row["prompt"], "user", f"{where}: prompt") if row.get("prompt") else []
    sides = {
        name: opening + _as_messages(row[name], "assistant", f"{where}: {name}")
        for name in ("chosen", "rejected")
    }
    shared = _common_prefix(*sides.values())
    if "example_id" not in rest and "task_id" not in rest:
        encoded = orjson.dumps(shared, option=orjson.OPT_SORT_KEYS)
        rest["example_id"] = hashlib.sha256(encoded).hexdigest()[:16]
    for name, reward in (("chosen", 1.0), ("rejected", 0.0)):
        yield {**rest, "messages": sides[name], "reward": reward}


def _as_trl(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a row in OpenAI's preference format under TRL's keys."""
    prompt = row.get("input")
    if not isinstance(prompt, Mapping) or not isinstance(prompt.get("messages"), list):
        raise DataError(f"{where}: input: found no messages; expected {{messages: [...]}}")
    rest = _without_keys(row, "input", "preferred_output", "non_preferred_output")
    more = _without_keys(prompt, "messages")
    return {
        **{key: value for key, value in more.items() if value not in (None, [])},
        **rest,
        "prompt": prompt["messages"],
        "chosen": row["preferred_output"],
        "rejected": row["non_preferred_output"],
    }


def _common_prefix(messages: Sequence[Any], other_messages: Sequence[Any]) -> list[Any]:
    """Return the common first messages of two lists."""
    prefix = []
    for first, second in zip(messages, other_messages, strict=False):
        if first != second:
            break
        prefix.append(first)
    return prefix


def _as_messages(value: Any, role: str, where: str) -> list[Any]:
    """Return a list unchanged, or a text as one message of this role. Raises DataError."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if isinstance(value, list):
        return value
    raise DataError(f"{where}: found {type(value).__name__}; expected a text or messages")


def _without_keys(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
