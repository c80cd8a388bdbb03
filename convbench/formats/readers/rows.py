"""Rows of any chat, preference or question set, ours too, read by their shape: a dialogue, a prompt
and a reply, or several replies to one prompt. See `columns`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import orjson

from convbench.formats.chats import (
    DIALOGUES,
    interleave,
    is_call,
    is_dialogue,
    joined,
    marked,
    read_chat,
    read_dialogue,
)
from convbench.formats.columns import (
    Row,
    columns,
    snake,
    take,
    take_replies,
    take_rewards,
    take_system,
    take_tools,
)
from convbench.formats.dialects import PERSONAL
from convbench.formats.log import LeftOut, LogConversation, LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_time, parsed

PROMPTS = (
    *("prompt", "question", "instruction", "query", "problem", "input", "inputs", "contents"),
    *("request", "arguments"),
)
REFERENCES = ("solution", "target", "targets")
REPLIES = (
    *("completion", "response", "output", "outputs", "actual_output", "generation", "resps"),
    *("result", "target", "targets", "solution", "answer", "answers"),
)
"""Columns of a reply; the references among them are one if there is no other reply."""
HIDDEN = (*REFERENCES, "ground_truth", "reference", "expected_output", "reward_model")
TASKS = ("example_id", "task_id", "prompt_id", "instance_id")
EPISODES = ("run_id", "trial_name", "task")
"""Columns that tell one run from another where a row is an episode with all before it."""
TIMES = ("timestamp", "created_at", "created", "time", "date", "tstamp")
EXPECTED = (
    "messages, or prompt with completion, or prompt, chosen and rejected; other names: "
    "--map messages=FIELD"
)


def recognises(first: object) -> bool:
    """An object with a dialogue, a prompt, or several replies."""
    row = columns(first) if isinstance(first, dict) else {}
    is_read = _dialogue_column(row) or not row.keys().isdisjoint((*PROMPTS, "text", "chat"))
    return bool(is_read or take_replies(row))


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a row."""
    row = columns(record)
    row.pop("metadata", None)
    tools, system = take_tools(row), take_system(row)
    replies = take_replies(row)
    if replies:
        prompt = _prompt_of_replies(row)
        found = [(_answered(prompt, reply), scores, more) for reply, scores, more in replies]
        if not all(any(m.role in ("user", "system") for m in whole) for whole, _, _ in found):
            raise LeftOut("several replies to no prompt")
    else:
        found = [(_dialogue(row), take_rewards(row), {})]
    about = _about(row, record)
    metadata = about.pop("metadata")
    if len(found) > 1 and about["task"] is None:
        about["task"] = _shared_id([messages for messages, _, _ in found])
    for messages, rewards, more in found:
        if more.pop("finish_reason", None) == "length":
            messages[-1].finish = "length"
        known = any(message.role == "system" for message in messages)
        messages = messages if known else system + messages
        log = LogConversation(messages, rewards=rewards, tools=tools, **about)
        log.metadata = metadata | more
        log.dropped["personal columns, not kept"] += sum(snake(n) in PERSONAL for n in record)
        yield log


def _shared_id(dialogues: list[list[LogMessage]]) -> str:
    """Return an id of the messages that dialogues begin with."""
    said = ([{"content": m.text, "role": m.role} for m in whole] for whole in dialogues)
    same = takewhile(lambda some: all(m == some[0] for m in some), zip(*said, strict=False))
    return hashlib.sha256(orjson.dumps([some[0] for some in same])).hexdigest()[:16]


def _dialogue_column(row: Row) -> str | None:
    return next((name for name in DIALOGUES if is_dialogue(row.get(name), texts=True)), None)


def _prompt_of_replies(row: Row) -> list[LogMessage]:
    """Take the prompt of several replies: a dialogue that ends with the user, a prompt, or what
    stands before the last reply of a dialogue that repeats one of them."""
    name = _dialogue_column(row)
    messages = read_dialogue(row.pop(name)) if name else []
    if messages and messages[-1].role == "user":
        return messages
    prompt = _prompt(row)
    while messages and messages[-1].role == "assistant":
        messages.pop()
    return prompt or messages


def _prompt(row: Row) -> list[LogMessage]:
    """Take the prompt: what came before, then the first of its columns with what adds to it."""
    before = _spoken(row.pop("history", []), "user")
    if is_dialogue(row.get("context")):
        return before + read_dialogue(row.pop("context"))
    is_instruction = row.keys().isdisjoint(PROMPTS[:2])
    value = take(row, *PROMPTS) or as_mapping(row.get("info")).get("post")
    if "messages" in (inside := as_mapping(value)):
        row |= {key: more for key, more in inside.items() if key not in ("messages", "tools")}
    if isinstance(value, str):
        more = [take(row, "input") if is_instruction else None, take(row, "context")]
        value = "\n\n".join(text for text in (value, *more) if isinstance(text, str))
    return before + _spoken(value, "user")


def _dialogue(row: Row) -> list[LogMessage]:
    """Take the dialogue of a row with one: a column of it, a prompt and a reply, or marked text.
    Raise LeftOut if there is none."""
    if name := _dialogue_column(row):
        return read_dialogue(row.pop(name))
    texts = [name for name in DIALOGUES if isinstance(row.get(name), str)]
    prompt = [] if any(marked(row[name]) for name in texts) else _prompt(row)
    if reply := next((name for name in REPLIES if prompt and _is_reply(row, name)), None):
        return _answered(prompt, row.pop(reply))
    for name in (*texts, "text", "completion"):
        if isinstance(row.get(name), str) and (messages := marked(row[name])):
            row.pop(name)
            return messages
    if any(message.role == "assistant" for message in prompt):
        return prompt
    if prompt:
        raise LeftOut("a question without a reply")
    raise LeftOut(f"found columns {', '.join(row)[:160]}; expected {EXPECTED}")


def _is_reply(row: Row, name: str) -> bool:
    value = parsed(row.get(name))
    if value is None or isinstance(value, bool | int | float):
        return False
    if name == "answers":  # several are references, but calls are a reply
        return isinstance(value, list) and all(map(is_call, value))
    is_reference = name in (*REFERENCES, "answer")
    return not is_reference or row.keys().isdisjoint(("choices", "endings", "options"))


def _answered(prompt: list[LogMessage], value: Any) -> list[LogMessage]:
    """Return a prompt with a reply; or texts of which each answers one of it, in turn."""
    texts, asked = as_list(value), [message.text for message in prompt if message.role == "user"]
    inside = as_list(asked[0]) if len(asked) == 1 else []
    asked = inside or (asked if isinstance(value, list) else [])
    if len(texts) == len(asked) > 0 and all(isinstance(text, str) for text in texts):
        system = [message for message in prompt if message.role == "system"]
        return system + interleave(t for pair in zip(asked, texts, strict=True) for t in pair)
    return joined(prompt, _spoken(value, "assistant"))


def _spoken(value: Any, role: Role) -> list[LogMessage]:
    """Return the messages of a prompt or a reply. A text is what was said, also one that is JSON,
    unless that is a dialogue or calls of tools."""
    inside = as_list(value)
    if not isinstance(value, str) or is_dialogue(value) or (inside and all(map(is_call, inside))):
        return read_chat(value, role)
    return marked(value) or [LogMessage(role, value)]


def _about(row: Row, record: Any) -> dict[str, Any]:
    """Take what is said about the conversation. Unknown columns are its metadata."""
    hidden, answer = dict(as_mapping(row.pop("hidden", None))), row.pop("answer", None)
    for name in HIDDEN:
        if name in row and not isinstance(row[name], bool):
            hidden.setdefault("reference", row.pop(name))
    if isinstance(answer, list | dict):
        hidden.setdefault("reference", answer)
    choices = as_mapping(row.get("choices")).get("text", row.get("choices"))
    if isinstance(choices, list) and all(isinstance(item, str) for item in choices):
        row.pop("choices")
    else:
        choices = []
    moments = (as_time(row.get(name)) for name in TIMES)
    about: dict[str, Any] = {
        "task": take(row, *TASKS),
        "group": take(row, "group", "group_id"),
        "split": row.pop("split", None),
        "temperature": row.pop("temperature", None),
        "question": row.pop("question", None),
        "choices": choices,
        "answer": str(answer) if isinstance(answer, str | int | float) else None,
        "hidden": hidden,
        "time": next((moment for moment in moments if moment is not None), None),
    }
    if "episode" in row:  # an export writes an episode a row, each with all before it
        about["id"] = "/".join(str(row[name]) for name in EPISODES if name in row)
    rest = {str(name): row.pop(snake(name)) for name in record if snake(name) in row}
    return about | {"metadata": rest | row | as_mapping(record.get("metadata"))}
