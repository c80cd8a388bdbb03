"""Rows of any chat, preference or question set, ours too, read by their shape: a dialogue, a prompt
and a reply, or several replies to one prompt. See `columns`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import orjson

from convbench.formats import chats, columns
from convbench.formats.chats import DIALOGUES, is_call, is_dialogue
from convbench.formats.columns import Row, snake, take
from convbench.formats.dialects import PERSONAL
from convbench.formats.log import LeftOut, LogConversation, LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_time, parsed

SYSTEMS = ("system", "system_prompt", "system_instruction", "custom_instructions")
PROMPTS = (
    *("prompt", "question", "instruction", "query", "problem", "input", "inputs", "contents"),
    *("request", "arguments"),
)
REPLIES = (
    *("completion", "response", "output", "outputs", "actual_output", "generation", "resps"),
    "result",
)
REFERENCES = ("target", "targets", "solution", "answer")
"""Columns of a reply if there is no other, nor options; else of what the policy does not see."""
HIDDEN = (
    *("solution", "target", "targets", "ground_truth", "reference", "expected_output"),
    "reward_model",
)
MARKED = (*DIALOGUES, "text", "completion")
"""Columns of a dialogue as one text."""
OPTIONS = ("choices", "endings", "options")
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
    row = columns.columns(first) if isinstance(first, dict) else {}
    is_asked = not row.keys().isdisjoint((*PROMPTS, "text", "chat"))
    return bool(is_asked or _dialogue_column(row) or columns.take_replies(row))


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a row."""
    row = columns.columns(record)
    row.pop("metadata", None)
    inner = as_mapping(row.get("chat_template_kwargs")).get("custom_instructions")
    system = chats.system_text(take(row, *SYSTEMS) or inner)
    tools, replies = columns.take_tools(row), columns.take_replies(row)
    if replies:
        prompt = _prompt_of_replies(row)
        found = [(_answered(prompt, reply), scores, more) for reply, scores, more in replies]
    else:
        found = [(_dialogue(row), columns.take_rewards(row), {})]
    about = _about(row, record)
    metadata = about.pop("metadata")
    if len(found) > 1 and about["task"] is None:
        about["task"] = _shared_id([messages for messages, _, _ in found])
    for messages, rewards, more in found:
        if replies and all(message.role == "assistant" for message in messages):
            raise LeftOut("several replies to no prompt")
        if more.pop("finish_reason", None) == "length":
            messages[-1].finish = "length"
        if system and all(message.role != "system" for message in messages):
            messages = [LogMessage("system", system), *messages]
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
    """Take a dialogue that ends with the user, else a prompt, else what stands before the last
    reply of a dialogue, which is one of them."""
    name = _dialogue_column(row)
    messages = chats.read_dialogue(row.pop(name)) if name else []
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
        return before + chats.read_dialogue(row.pop("context"))
    is_instruction = row.keys().isdisjoint(PROMPTS[:2])
    value = take(row, *PROMPTS) or as_mapping(row.get("info")).get("post")
    inside = as_mapping(value)
    if "messages" in inside:
        row |= {key: more for key, more in inside.items() if key not in ("messages", "tools")}
    if isinstance(value, str):
        more = [take(row, "input") if is_instruction else None, take(row, "context")]
        value = "\n\n".join(text for text in (value, *more) if isinstance(text, str))
    return before + _spoken(value, "user")


def _dialogue(row: Row) -> list[LogMessage]:
    """Take the dialogue of a row with one: a column of it, a prompt and a reply, or marked text.
    Raise LeftOut if there is none."""
    if name := _dialogue_column(row):
        return chats.read_dialogue(row.pop(name))
    texts = {name: row[name] for name in MARKED if isinstance(row.get(name), str)}
    marked = {name: messages for name, text in texts.items() if (messages := chats.marked(text))}
    prompt = [] if any(name in DIALOGUES for name in marked) else _prompt(row)
    names = [*REPLIES, *(REFERENCES if row.keys().isdisjoint(OPTIONS) else ())]
    names += ["answers"] if all(map(is_call, as_list(row.get("answers")))) else []
    said = (name for name in names if isinstance(parsed(row.get(name)), str | list | dict))
    if prompt and (reply := next(said, None)):
        return _answered(prompt, row.pop(reply))
    for name, messages in marked.items():
        row.pop(name)
        return messages
    if any(message.role == "assistant" for message in prompt):
        return prompt
    if prompt:
        raise LeftOut("a question without a reply")
    raise LeftOut(f"found columns {', '.join(row)[:160]}; expected {EXPECTED}")


def _answered(prompt: list[LogMessage], value: Any) -> list[LogMessage]:
    """Return a prompt with a reply; or texts of which each answers one of it, in turn."""
    texts, asked = as_list(value), [message.text for message in prompt if message.role == "user"]
    inside = as_list(asked[0]) if len(asked) == 1 else []
    asked = inside or (asked if isinstance(value, list) else [])
    if len(texts) == len(asked) > 0 and all(isinstance(text, str) for text in texts):
        system = [message for message in prompt if message.role == "system"]
        return system + chats.interleave(t for pair in zip(asked, texts, strict=True) for t in pair)
    return chats.joined(prompt, _spoken(value, "assistant"))


def _spoken(value: Any, role: Role) -> list[LogMessage]:
    """Return the messages of a prompt or a reply. A text is what was said, also one that is JSON,
    unless that is a dialogue or calls of tools."""
    inside = as_list(value)
    if not isinstance(value, str) or is_dialogue(value) or (inside and all(map(is_call, inside))):
        return chats.read_chat(value, role)
    return chats.marked(value) or [LogMessage(role, value)]


def _about(row: Row, record: Any) -> dict[str, Any]:
    """Take what is said about the conversation. Unknown columns are its metadata."""
    hidden, answer = dict(as_mapping(row.pop("hidden", None))), row.pop("answer", None)
    reference = take(row, *(name for name in HIDDEN if not isinstance(row.get(name), bool)))
    if reference is None and isinstance(answer, list | dict):
        reference = answer
    if reference is not None:
        hidden.setdefault("reference", reference)
    choices = as_mapping(row.get("choices")).get("text", row.get("choices"))
    if isinstance(choices, list) and all(isinstance(item, str) for item in choices):
        row.pop("choices")
    else:
        choices = []
    moments = (as_time(row.get(name)) for name in TIMES)
    about: dict[str, Any] = {
        "task": take(row, *TASKS),
        "group": take(row, "group", "group_id"),
        **{name: row.pop(name, None) for name in ("split", "temperature", "question")},
        "choices": choices,
        "answer": str(answer) if isinstance(answer, str | int | float) else None,
        "hidden": hidden,
        "time": next((moment for moment in moments if moment is not None), None),
    }
    if "episode" in row:  # an export writes an episode a row, each with all before it
        about["id"] = "/".join(str(row[name]) for name in EPISODES if name in row)
    rest = {str(name): row.pop(snake(name)) for name in record if snake(name) in row}
    return about | {"metadata": rest | row | as_mapping(record.get("metadata"))}
