"""Rows of other people's sets as conversations: TRL's, OpenAI's, spreadsheets, ColBench's; and what
a row says beside.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from convbench.errors import DataError
from convbench.hub.rows import read_json
from convbench.store.shape import deeper

MESSAGES = ("messages", "conversations", "conversation")
SAME: tuple[tuple[str, ...], ...] = (
    MESSAGES,
    ("reward", "rewards"),
    ("example_id", "task_id"),
    ("group", "group_id"),
)
"""Names of one thing: a row has one of them."""
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


HISTORY = "dialogue_history"
HIDDEN = {"ground_truth": "reference", "test_cases": "tests", "hidden_information": "information"}
"""Their names of hidden fields, and ours (tasks `colbench-backend`, `colbench-frontend`)."""
_SYSTEM = re.compile(
    r"\A(?:<\|begin_of_text\|>)?<\|start_header_id\|>system<\|end_header_id\|>\s*+"
    r"(?:Cutting Knowledge Date:[^\n]*+\nToday Date:[^\n<]*+\s*+)?(.*?)<\|eot_id\|>",
    re.DOTALL,
)
"""The system prompt in a prompt rendered with Llama 3's template, without its own two lines."""


def is_released(row: Mapping[str, Any]) -> bool:
    """Whether a row has this shape."""
    return isinstance(row.get("task"), dict) and isinstance(row.get(HISTORY), list)


def as_ours(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the row with our keys; all that has no place with us goes to the metadata."""
    task = dict(row["task"])
    question = task.pop("problem_description", None)
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{where}: task.problem_description: found none; expected the request")
    hidden = {ours: task.pop(name) for name, ours in HIDDEN.items() if task.get(name) is not None}
    for name, ours in HIDDEN.items():  # some files have it beside the task
        if ours not in hidden and row.get(name) is not None:
            hidden[ours] = row[name]
    known = {"task", HISTORY, "reward", *HIDDEN}
    rest = {key: value for key, value in row.items() if key not in known and value is not None}
    messages = [_message(item, f"{where}: {HISTORY}[{i}]") for i, item in enumerate(row[HISTORY])]
    while messages and messages[-1]["role"] == "user":  # what nobody answered
        messages.pop()
    return {
        "messages": [*_system(row[HISTORY]), *messages],
        "question": question,
        "hidden": hidden,
        "reward": row.get("reward"),
        "metadata": {**rest, **({"task": task} if task else {})},
    }


def _message(item: object, where: str) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("content"), str):
        raise DataError(f"{where}: expected an object with role and content")
    role = {"agent": "assistant", "human": "user"}.get(str(item.get("role")), item.get("role"))
    whole = item.get("output")  # with what it thought before OUTPUT:
    said = whole if role == "assistant" and isinstance(whole, str) else item["content"]
    return {"role": role, "content": said}


def _system(history: list[Any]) -> list[dict[str, Any]]:
    """Return the system prompt of the first rendered prompt, where one can be read."""
    prompts = (item.get("input") for item in history if isinstance(item, dict))
    first = next((text for text in prompts if isinstance(text, str)), "")
    found = _SYSTEM.match(first[:100_000])
    text = found[1].strip() if found else ""
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
