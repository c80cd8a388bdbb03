"""Rows of any chat, preference or question set, ours too, read by their shape: a dialogue, a prompt
and a reply, or several replies to one prompt. See `columns` and `candidates`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import orjson

from convbench.formats.candidates import candidates, has_candidates, replaces_reply
from convbench.formats.columns import (
    DIALOGUES,
    PROMPTS,
    REFERENCES,
    REPLIES,
    Items,
    Row,
    as_items,
    dialogue,
    is_call,
    joined,
    marked,
    read_chat,
    role_of,
    take_rewards,
    take_system,
    take_tools,
)
from convbench.formats.dialects import as_list, as_mapping, as_number, as_time, parsed
from convbench.formats.log import LeftOut, LogConversation

TASKS = ("example_id", "task_id", "prompt_id", "instance_id")
IDS = ("conversation_id", "conversation_hash", "uuid", "id", "traj_id")
ASKING = ("user", "human", "prompter", "input", "system")
"""Roles of what is replied to."""
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
    talks = any(dialogue(row.look(name), texts=True) for name in DIALOGUES if name in row)
    return talks or has_candidates(row) or any(name in row for name in (*PROMPTS, "text", "chat"))


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversations of a row."""
    row = Row(record)
    row.take("metadata")
    inner = as_mapping(row.look("input"))
    tools = take_tools(row, inner)
    system = take_system(row)
    several = has_candidates(row)
    prompt = (_context(row) or _prompt(row)) if several else []
    if several:
        found = list(candidates(row, prompt))
        if not all(any(role_of(item) in ASKING for item in whole) for whole, _, _ in found):
            raise LeftOut("several replies to no prompt")
    else:
        whole = _whole(row, bool(system))
        found = [(whole, take_rewards(row), {})]
    about = _about(row, record)
    if len(found) == 2 and about["task"] is None:
        about["task"] = _shared_id(found[0][0], found[1][0])
    for items, rewards, more in found:
        known = any(role_of(i) == "system" for i in items)
        log = LogConversation(read_chat(items if known else system + items), rewards=rewards)
        if more.pop("finish_reason", None) == "length" and log.messages:
            log.messages[-1].finish = "length"
        log.tools = tools
        for name, value in about.items():
            setattr(log, name, value)
        log.metadata = about["metadata"] | more
        yield log


def _shared_id(some: Items, others: Items) -> str:
    """Return an id of the messages that two dialogues begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))
    shared = orjson.dumps([pair[0] for pair in same], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(shared).hexdigest()[:16]


def _context(row: Row) -> Items:
    """Take the dialogue beside candidates; return it if it is their prompt, which ends with the
    user, and nothing if it repeats one of them."""
    name = next((n for n in DIALOGUES if n in row and dialogue(row.look(n), texts=True)), None)
    if name is None or replaces_reply(row):
        return []
    items = dialogue(row.take(name), texts=True) or []
    return items if role_of(items[-1]) in ("user", "human") or name == "trajectory" else []


def _prompt(row: Row) -> Items:
    """Take the prompt: what came before, then the first of its columns with what adds to it."""
    before = row.take("history")
    items = dialogue(before) or (as_items(before, "user") if isinstance(before, str) else [])
    context = row.look("context")
    if dialogue(context):
        return items + (dialogue(row.take("context")) or [])
    name = next((n for n in PROMPTS if n in row), None)
    value = row.take(name) if name else as_mapping(row.look("info")).get("post")
    if value is None:
        return items
    more = [row.take("input")] if name == "instruction" else []
    more += [row.take("context")] if isinstance(context, str) else []
    texts = [text for text in (value, *more) if isinstance(text, str)]
    if isinstance(value, str) and len(texts) > 1:
        value = "\n\n".join(texts)
    return items + as_items(value, "user")


def _whole(row: Row, has_system: bool) -> Items:
    """Take the dialogue of a row with one: a column of it, a prompt and a reply, or marked text.
    Raise LeftOut if there is none."""
    for name in DIALOGUES:
        items = dialogue(row.look(name), texts=True) if name in row else None
        if items:
            row.take(name)
            return items
        text = row.look(name)
        if isinstance(text, str) and (items := marked(text)):
            row.take(name)
            return items
    steps = [str(step) for step in as_list(row.take("steps"))]
    prompt = _prompt(row)
    reply = next((n for n in REPLIES if _is_reply(row, n, prompt)), None)
    if prompt and steps:  # each step of one reply; `label` is the first that is wrong
        wrong = as_number(row.take("label"))
        if wrong is not None:
            row.values["reward"], row.names["reward"] = float(wrong < 0), "reward"
        return joined(prompt, as_items("\n\n".join(steps), "assistant"))
    if prompt and reply:
        return joined(prompt, as_items(row.take(reply), "assistant"))
    for name in ("text", "completion", "chat"):
        if isinstance(row.look(name), str) and (items := marked(row.look(name))):
            row.take(name)
            return items
    if prompt:
        if any(role_of(item) in ("assistant", "gpt") for item in prompt):
            return prompt
        raise LeftOut("a question without a reply")
    raise LeftOut(f"found columns {', '.join(row.names.values())[:160]}; expected {EXPECTED}")


def _is_reply(row: Row, name: str, prompt: Items) -> bool:
    if name not in row or not prompt:
        return False
    is_choice = any(n in row for n in ("choices", "endings", "options"))
    value = parsed(row.look(name))
    if isinstance(value, bool | int | float):
        return False
    if name == "answers":  # several are references, but calls are a reply
        return isinstance(value, list) and all(is_call(item) for item in value)
    return not (name in REFERENCES and is_choice)


def _about(row: Row, record: Any) -> dict[str, Any]:
    """Take what is said about the conversation. Unknown columns are its metadata."""
    hidden = dict(as_mapping(row.take("hidden")))
    answer = row.take("answer")
    for name in (*REFERENCES[1:], "ground_truth", "reference", "expected_output", "reward_model"):
        if name in row and not isinstance(row.look(name), bool):
            hidden.setdefault("reference", row.take(name))
    choices = row.look("choices")
    choices = choices.get("text") if isinstance(choices, dict) else choices
    texts = isinstance(choices, list) and all(isinstance(item, str) for item in choices)
    task = next((row.take(name) for name in TASKS if name in row), None)
    group = row.take("group", "group_id")
    own = next((row.look(name) for name in IDS if name in row), None)
    moment = next((as_time(row.look(name)) for name in TIMES if name in row), None)
    if isinstance(answer, list | dict):
        hidden.setdefault("reference", answer)
    about: dict[str, Any] = {
        "task": None if task is None else str(task),
        "group": None if group is None else str(group),
        "id": str(own) if "episode" in row else None,
        "split": str(row.take("split")) if "split" in row else None,
        "temperature": as_number(row.take("temperature")) if "temperature" in row else None,
        "question": str(row.take("question")) if "question" in row else None,
        "choices": choices if texts and row.take("choices") else [],
        "answer": str(answer) if isinstance(answer, str | int | float) else None,
        "hidden": hidden,
        "time": moment,
    }
    if "episode" in row:  # an export writes an episode a row, each with all before it
        about["id"] = "/".join(
            str(row.look(n)) for n in ("run_id", "trial_name", "task") if n in row
        )
    own_metadata = as_mapping(record.get("metadata"))
    asked = as_mapping(row.values.get("input")) if "messages" in row.values.get("input", ()) else {}
    more = {k: v for k, v in asked.items() if k not in ("messages", "tools")}
    return about | {"metadata": more | row.rest() | own_metadata}
