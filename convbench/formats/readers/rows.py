"""Rows of any chat, preference or question set, ours too, read by their shape: a dialogue, a prompt
and a reply, or several replies to one prompt. See `columns`."""

import hashlib
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from itertools import takewhile
from typing import Any

import orjson

from convbench.formats import chats, columns
from convbench.formats.chats import DIALOGUES, are_calls, dialogue_in, read_dialogue
from convbench.formats.columns import CANDIDATES, REPLIES, Row, snake, take
from convbench.formats.dialects import PERSONAL, text_in
from convbench.formats.log import LeftOut, LogConversation, LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_time, at, parsed

PROMPTS = (
    *("prompt", "question", "instruction", "query", "problem", "input", "inputs", "contents"),
    *("request", "arguments"),
)
REFERENCES = ("target", "targets", "solution")  # a reply if there is no other, nor options
HIDDEN = (*REFERENCES, "ground_truth", "reference", "expected_output", "reward_model")
OPTIONS = ("choices", "endings", "options")
TASKS = ("example_id", "task_id", "prompt_id", "instance_id")
EPISODES = ("run_id", "trial_name", "task")  # they tell one run from another
TIMES = ("timestamp", "created_at", "created", "time", "date", "tstamp")
EXPECTED = (
    "messages, or prompt with completion, or prompt, chosen and rejected; other names: "
    "--map messages=FIELD"
)


def recognises(first: object) -> bool:
    """An object with a dialogue, a prompt, or several replies."""
    row = columns.columns(first) if isinstance(first, dict) else {}
    is_asked = not row.keys().isdisjoint((*PROMPTS, "text", "chat"))
    is_dialogue = any(dialogue_in(row.get(name), texts=True) for name in DIALOGUES)
    return bool(is_asked or is_dialogue or columns.take_replies(row))


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a row."""
    row = columns.columns(record)
    settings = as_mapping(row.get("chat_template_kwargs"))
    system = text_in(take(row, *chats.SYSTEMS) or settings.get("custom_instructions"))
    tools, replies = columns.take_tools(row), columns.take_replies(row)
    if replies:
        prompt = _take_prompt_of_replies(row)
        dialogues = [_answered(deepcopy(prompt), take(reply, *CANDIDATES)) for reply in replies]
        rewards = [columns.take_rewards(reply) for reply in replies]
        if any(all(message.role == "assistant" for message in said) for said in dialogues):
            raise LeftOut("several replies to no prompt")
    else:
        dialogues, replies, rewards = [_take_dialogue(row)], [{}], [columns.take_rewards(row)]
    about = _about(row, record)
    about.tools = tools
    if len(dialogues) > 1 and about.task is None:
        about.task = _shared_id(dialogues)
    for messages, scores, more in zip(dialogues, rewards, replies, strict=True):
        if more.pop("finish_reason", None) == "length":
            messages[-1].finish = "length"
        if system and all(message.role != "system" for message in messages):
            messages = [LogMessage("system", system), *messages]
        metadata = about.metadata | more
        yield replace(about, messages=messages, rewards=scores, metadata=metadata)


def _shared_id(dialogues: list[list[LogMessage]]) -> str:
    """Return an id of the messages that dialogues begin with."""
    said = ([{"content": m.text, "role": m.role} for m in whole] for whole in dialogues)
    same = takewhile(lambda some: all(m == some[0] for m in some), zip(*said, strict=False))
    return hashlib.sha256(orjson.dumps([some[0] for some in same])).hexdigest()[:16]


def _take_dialogue(row: Row) -> list[LogMessage]:
    """Take a dialogue, else a prompt and a reply, else a text that is a dialogue."""
    if messages := _take_whole(row, *DIALOGUES):
        return messages
    prompt = _take_prompt(row)
    names = [*REPLIES, *((*REFERENCES, "answer") if row.keys().isdisjoint(OPTIONS) else ())]
    names += ["answers"] if are_calls(row.get("answers")) else []
    said = (name for name in names if isinstance(parsed(row.get(name)), str | list | dict))
    if prompt and (reply := next(said, None)):
        return _answered(prompt, row.pop(reply))
    if messages := _take_whole(row, "text", "completion"):
        return messages
    if prompt and all(message.role != "assistant" for message in prompt):
        raise LeftOut("a question without a reply")
    if not prompt:
        raise LeftOut(f"found columns {', '.join(row)[:160]}; expected {EXPECTED}")
    return prompt


def _take_whole(row: Row, *names: str) -> list[LogMessage]:
    """Take the first of these columns that is a dialogue."""
    for name in names:
        if messages := read_dialogue(row.get(name), texts=name in DIALOGUES):
            row.pop(name)
            return messages
    return []


def _take_prompt_of_replies(row: Row) -> list[LogMessage]:
    """Take a dialogue that waits for a reply, else a prompt, else what stands before the last reply
    of a dialogue, which is one of them."""
    messages = _take_whole(row, *DIALOGUES)
    if messages and messages[-1].role == "user":
        return messages
    while messages and messages[-1].role == "assistant":
        messages.pop()
    return _take_prompt(row) or messages


def _take_prompt(row: Row) -> list[LogMessage]:
    """Take the prompt: what came before, then the first of its columns with what adds to it."""
    before = _spoken(row.pop("history", []), "user")
    if dialogue_in(row.get("context")):
        return before + read_dialogue(row.pop("context"))
    is_instruction = row.keys().isdisjoint(PROMPTS[:2])
    value = take(row, *PROMPTS) or at(row, "info", "post")
    inside = as_mapping(value)
    if "messages" in inside:
        row |= {key: more for key, more in inside.items() if key not in ("messages", "tools")}
    if isinstance(value, str):
        more = [take(row, "input") if is_instruction else None, take(row, "context")]
        value = "\n\n".join(text for text in (value, *more) if isinstance(text, str))
    return before + _spoken(value, "user")


def _answered(prompt: list[LogMessage], value: Any) -> list[LogMessage]:
    """Return a prompt with a reply; or texts of which each answers one of it, in turn."""
    texts, asked = as_list(value), [message.text for message in prompt if message.role == "user"]
    inside = as_list(asked[0]) if len(asked) == 1 else []
    asked = inside or (asked if isinstance(value, list) else [])
    if len(texts) == len(asked) > 0 and all(isinstance(text, str) for text in texts):
        system = [message for message in prompt if message.role == "system"]
        return system + read_dialogue([list(pair) for pair in zip(asked, texts, strict=True)])
    return chats.joined(prompt, _spoken(value, "assistant"))


def _spoken(value: Any, role: Role) -> list[LogMessage]:
    """Return the messages of a prompt or a reply. A text is what was said, also one that is JSON,
    unless that is a dialogue or calls of tools."""
    if isinstance(value, str) and not (dialogue_in(value) or are_calls(value)):
        return read_dialogue(value) or [LogMessage(role, value)]
    return chats.read_chat(value, role)


def _about(row: Row, record: Any) -> LogConversation:
    """Take what is said about the conversation. Unknown columns are its metadata."""
    metadata, answer = as_mapping(record.get("metadata")), row.pop("answer", None)
    reference = take(row, *(name for name in HIDDEN if not isinstance(row.get(name), bool)))
    if reference is None and isinstance(answer, list | dict):
        reference = answer
    choices = at(row, "choices", "text") or row.get("choices")
    if isinstance(choices, list) and all(isinstance(item, str) for item in choices):
        row.pop("choices")
    else:
        choices = []
    moments = (as_time(row.get(name)) for name in TIMES)
    log = LogConversation(
        task=take(row, *TASKS),
        group=take(row, "group", "group_id"),
        split=take(row, "split"),
        question=take(row, "question"),
        choices=choices,
        answer=str(answer) if isinstance(answer, str | int | float) else None,
        hidden={} if reference is None else {"reference": reference},
        temperature=take(row, "temperature"),
        time=next((moment for moment in moments if moment is not None), None),
    )
    log.hidden |= as_mapping(take(row, "hidden"))
    if "episode" in row:  # an export writes an episode a row, each with all before it
        log.id = "/".join(str(row[name]) for name in EPISODES if name in row)
    if metadata:
        row.pop("metadata", None)
    rest = {str(name): row.pop(snake(name)) for name in record if snake(name) in row}
    log.metadata = rest | row | metadata
    log.dropped["personal columns, not kept"] = sum(snake(name) in PERSONAL for name in record)
    return log
