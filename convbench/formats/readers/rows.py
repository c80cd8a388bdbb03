"""Rows of any chat, preference or question set, ours too, read by their shape: a dialogue, a prompt
and a reply, or several replies to one prompt. See `columns` and `candidates`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import orjson

from convbench.formats.candidates import candidates, has_candidates, rejected_column
from convbench.formats.chats import DIALOGUES, is_dialogue, joined, marked, read_dialogue
from convbench.formats.columns import (
    Row,
    calls_alone,
    first_text,
    spoken,
    take_rewards,
    take_system,
    take_tools,
)
from convbench.formats.log import LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_time, parsed

PROMPTS = (
    *("prompt", "question", "instruction", "query", "problem", "input", "inputs", "contents"),
    *("request", "arguments"),
)
REPLIES = (
    *("completion", "response", "output", "outputs", "actual_output", "generation", "resps"),
    *("result", "target", "targets", "solution", "answer", "answers"),
)
RENDERED = ("arguments", "resps")
"""Columns of lm-eval, whose first text is what was sent, or the reply."""
REFERENCES = ("answer", "solution", "target", "targets")
"""Replies that are a reference if there is another reply."""
HIDDEN = (*REFERENCES[1:], "ground_truth", "reference", "expected_output", "reward_model")
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
    if not isinstance(first, dict):
        return False
    row = Row(first)
    talks = any(is_dialogue(row.look(name), texts=True) for name in DIALOGUES)
    return talks or has_candidates(row) or row.first(*PROMPTS, "text", "chat") is not None


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a row."""
    row = Row(record)
    row.take("metadata")
    tools, system = take_tools(row), take_system(row)
    if has_candidates(row):
        found = list(candidates(row, _context(row) or _prompt(row)))
        if not all(any(m.role in ("user", "system") for m in whole) for whole, _, _ in found):
            raise LeftOut("several replies to no prompt")
    else:
        whole = _whole(row)
        found = [(whole, take_rewards(row), {})]
    about = _about(row, record)
    if len(found) == 2 and about["task"] is None:
        about["task"] = _shared_id(found[0][0], found[1][0])
    for messages, rewards, more in found:
        known = any(message.role == "system" for message in messages)
        log = LogConversation(
            messages if known else system + messages, rewards=rewards, tools=tools
        )
        if more.pop("finish_reason", None) == "length":
            log.messages[-1].finish = "length"
        for name, value in about.items():
            setattr(log, name, value)
        log.metadata = about["metadata"] | more
        log.dropped["personal columns, not kept"] += row.personal
        yield log


def _shared_id(some: list[LogMessage], others: list[LogMessage]) -> str:
    """Return an id of the messages that two dialogues begin with."""
    said = ([{"content": m.text, "role": m.role} for m in whole] for whole in (some, others))
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*said, strict=False))
    return hashlib.sha256(orjson.dumps([pair[0] for pair in same])).hexdigest()[:16]


def _context(row: Row) -> list[LogMessage]:
    """Take the dialogue beside candidates; return it if it is their prompt, which ends with the
    user, and nothing if it repeats one of them."""
    name = next((name for name in DIALOGUES if is_dialogue(row.look(name), texts=True)), None)
    if name is None or rejected_column(row):
        return []
    messages = read_dialogue(row.take(name))
    return messages if messages[-1].role == "user" or name == "trajectory" else []


def _prompt(row: Row) -> list[LogMessage]:
    """Take the prompt: what came before, then the first of its columns with what adds to it."""
    before = row.take("history")
    messages = read_dialogue(before) if is_dialogue(before) else spoken(before or [], "user")
    context = row.look("context")
    if is_dialogue(context):
        return messages + read_dialogue(row.take("context"))
    name = row.first(*PROMPTS)
    value = row.take(name) if name else as_mapping(row.look("info")).get("post")
    value = first_text(value) if name in RENDERED else value
    if value is None:
        return messages
    more = [row.take("input")] if name == "instruction" else []
    more += [row.take("context")] if isinstance(context, str) else []
    texts = [text for text in (value, *more) if isinstance(text, str)]
    whole = "\n\n".join(texts) if isinstance(value, str) else value
    return messages + spoken(whole, "user")


def _whole(row: Row) -> list[LogMessage]:
    """Take the dialogue of a row with one: a column of it, a prompt and a reply, or marked text.
    Raise LeftOut if there is none."""
    for name in DIALOGUES:
        value = row.look(name)
        if is_dialogue(value, texts=True):
            return read_dialogue(row.take(name))
        if isinstance(value, str) and (messages := marked(value)):
            row.take(name)
            return messages
    steps, prompt = as_list(row.take("steps")), _prompt(row)
    if prompt and steps:  # each step of one reply; `label` is the first that is wrong
        if numbers := row.take_numbers("label"):
            row.values["reward"], row.names["reward"] = float(numbers[0] < 0), "reward"
        return joined(prompt, spoken("\n\n".join(map(str, steps)), "assistant"))
    reply = next((name for name in REPLIES if prompt and _is_reply(row, name)), None)
    if reply:
        value = row.take(reply)
        said = spoken(first_text(value) if reply in RENDERED else value, "assistant")
        is_parallel = len(prompt) == len(said) > 1 and isinstance(parsed(value), list)
        if is_parallel:  # lists of what was asked and what was said
            return [message for pair in zip(prompt, said, strict=True) for message in pair]
        return joined(prompt, said)
    for name in ("text", "completion"):
        if isinstance(row.look(name), str) and (messages := marked(row.look(name))):
            row.take(name)
            return messages
    if any(message.role == "assistant" for message in prompt):
        return prompt
    if prompt:
        raise LeftOut("a question without a reply")
    raise LeftOut(f"found columns {', '.join(row.names.values())[:160]}; expected {EXPECTED}")


def _is_reply(row: Row, name: str) -> bool:
    value = parsed(row.look(name))
    if value is None or isinstance(value, bool | int | float):
        return False
    if name == "answers":  # several are references, but calls are a reply
        return bool(calls_alone(value))
    return not (name in REFERENCES and row.first("choices", "endings", "options"))


def _about(row: Row, record: Any) -> dict[str, Any]:
    """Take what is said about the conversation. Unknown columns are its metadata."""
    hidden = dict(as_mapping(row.take("hidden")))
    answer = row.take("answer")
    for name in HIDDEN:
        if name in row and not isinstance(row.look(name), bool):
            hidden.setdefault("reference", row.take(name))
    if isinstance(answer, list | dict):
        hidden.setdefault("reference", answer)
    choices = row.look("choices")
    choices = choices.get("text") if isinstance(choices, dict) else choices
    texts = isinstance(choices, list) and all(isinstance(item, str) for item in choices)
    moments = (as_time(row.look(name)) for name in TIMES)
    about: dict[str, Any] = {
        "task": row.take(*TASKS),
        "group": row.take("group", "group_id"),
        "split": row.take("split"),
        "temperature": row.take("temperature"),
        "question": row.take("question"),
        "choices": choices if texts and row.take("choices") else [],
        "answer": str(answer) if isinstance(answer, str | int | float) else None,
        "hidden": hidden,
        "time": next((moment for moment in moments if moment is not None), None),
    }
    if "episode" in row:  # an export writes an episode a row, each with all before it
        about["id"] = "/".join(str(row.look(name)) for name in EPISODES if name in row)
    asked = as_mapping(row.values.get("input")) if "messages" in row.values.get("input", ()) else {}
    more = {k: v for k, v in asked.items() if k not in ("messages", "tools")}
    return about | {"metadata": more | row.rest() | as_mapping(record.get("metadata"))}
