"""A chat in any shape: a dialogue, a request or response of a model, a text, often as JSON text."""

import re
from dataclasses import replace
from itertools import takewhile
from typing import Any

from convbench.formats import dialects, values
from convbench.formats.dialects import ROLES, SIGNS, read_content, text_in
from convbench.formats.log import LogMessage, Role
from convbench.formats.values import as_list, as_mapping, as_text, first_of, kept, parsed

# names of what holds a complete dialogue; keys under which a request or response holds the rest
DIALOGUES = ["conversations", "conversation", "messages", "dialogue", "dialog", "trajectory"]
DIALOGUES += ["traj", "turns", "contents", "chat", "data", "input_messages", "output_messages"]
INSIDE = ["choices", "candidates", "generations", "output", "message", "kwargs", "args", "input"]
INSIDE += ["prompt", "response", "completion", "completions", "raw", "content", "text", "full_text"]
INSIDE += ["problem", "body", "prompts", "gen_args_0", "arg_0"]
SYSTEMS = ("system", "system_prompt", "system_instruction", "systemInstruction")
ASKED, SAID = ("user", "human", "input", "instruction"), ("assistant", "gpt", "output", "response")
ITEMS = ("function_call", "function_call_output", "reasoning", "message", "computer_call")
MARK = re.compile(r"(?im)^[ \t]*(?:#+[ \t]*|<extra_id_\d>)?(human|hum|user|assistant|system)[:\n]")
PRINTED = re.compile(r"role='(\w+)' content=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None)")


def role_name(item: Any) -> str | None:
    """Return the role of a message as its source calls it, in small letters, else None."""
    fields = item if isinstance(item, dict) else {}
    kind = fields.get("type") if "content" in fields else None
    name = first_of(fields, "role", "from") or (kind if str(kind).lower() in ROLES else None)
    return name.lower() if isinstance(name, str) else None


def dialogue_in(value: Any, *, texts: bool = False) -> list[Any]:
    """Return the messages of a dialogue, each an object with a role; none of any other value. With
    `texts` a list of texts is one too, the user's first."""
    value = parsed(value)
    if isinstance(value, str):
        return _marked(value)
    if isinstance(value, dict) and not role_name(value):
        return next(filter(None, (dialogue_in(value.get(name)) for name in DIALOGUES)), [])
    items = [value] if isinstance(value, dict) else as_list(value)
    if all(map(role_name, items)):
        return items
    said = items if texts and all(isinstance(item, str) for item in items) else []
    if all(map(_exchange, items)):
        said = [text for item in items for text in _exchange(item)]
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": as_text(text)} for n, text in enumerate(said)]


def _exchange(item: Any) -> list[Any]:
    if isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
        return item
    found = [first_of(as_mapping(item), *keys) for keys in (ASKED, SAID)]
    return [] if None in found else found


def read_dialogue(value: Any, *, texts: bool = False) -> list[LogMessage]:
    """Return the messages of a dialogue (see `dialogue_in`). Raise LeftOut for an unknown role or a
    call that cannot be read."""
    out: list[LogMessage] = []
    for number, item in enumerate(dialogue_in(value, texts=texts)):
        messages = dialects.read_message(values.without_nulls(item))
        if role_name(item) in dialects.CALL_ROLES and out and out[-1].role == "assistant":
            messages[0].group = out[-1].group = out[-1].group or f"reply {number}"
        out += messages
    return out


def _marked(text: str) -> list[Any]:
    before, *rest = MARK.split(text)
    roles = [ROLES[name.lower()] for name in rest[::2]]
    if before.strip() or len(set(roles)) < 2:
        return []
    texts = [said.replace("<|endoftext|>", "").strip() for said in rest[1::2]]
    messages = [{"role": role, "content": said} for role, said in zip(roles, texts, strict=True)]
    return messages if texts[-1] else messages[:-1]  # an open last marker is no turn


def are_calls(value: Any) -> bool:
    """Return whether a value is a list of calls alone: names with arguments."""
    items = as_list(value)
    return bool(items) and all({"name", "arguments"} <= as_mapping(item).keys() for item in items)


def read_chat(value: Any, role: Role) -> list[LogMessage]:
    """Return the messages in a value of any shape, of which a text, a part or a call is said by
    `role`. Raise LeftOut for an unknown role or a call that cannot be read."""
    value = parsed(value)
    if isinstance(value, str) and value not in ("", "None"):
        found = PRINTED.findall(value) if value.startswith("role='") else []  # by Python
        printed = [LogMessage(ROLES[who], text_in(parsed(f"[{said}]"))) for who, said in found]
        return printed or read_dialogue(value) or [LogMessage(role, value)]
    if not isinstance(value, dict) or role_name(value):
        return read_dialogue(value) or _read_list(as_list(value), role)
    if isinstance(value.get("id"), list) and "kwargs" in value:  # LangChain's own JSON
        return read_chat({"type": value["id"][-1], **as_mapping(value["kwargs"])}, role)
    inner = next(iter(kept(value, *DIALOGUES, *INSIDE).values()), None)
    said = read_content(value, role) if "parts" in value else read_chat(inner, role)
    if said:
        said[-1].finish = first_of(value, "finish_reason", "stop_reason") or said[-1].finish
    systems = kept(as_mapping(value.get("config")) | value, "instructions", *SYSTEMS).values()
    return [LogMessage("system", text) for text in map(text_in, systems) if text][:1] + said


def _read_list(items: list[Any], role: Role) -> list[LogMessage]:
    objects = all(isinstance(item, dict) for item in items)
    if objects and all(role_name(item) or item.get("type") in ITEMS for item in items):
        return dialects.response_items(items)
    if are_calls(items):
        return [LogMessage(role, calls=list(map(dialects.as_call, items)))]
    if objects and all(SIGNS & item.keys() and "message" not in item for item in items):
        return [m for m in read_content(items, role) if m.text or m.reasoning or m.calls]
    if all(isinstance(item, list) for item in items):
        items = items[0]  # of a batch, one is one conversation
    return [message for item in items for message in read_chat(item, role)]


def read_exchange(asked: Any, said: Any, **own: Any) -> list[LogMessage]:
    """Return the messages of a call: its input and, if it does not end with it, its output; `own`
    are fields of the reply that the log says beside it."""
    messages, reply = read_chat(asked, "user"), read_chat(said, "assistant")
    return joined(messages, [m if m.role == "system" else replace(m, **own) for m in reply])


def joined(prompt: list[LogMessage], reply: list[LogMessage]) -> list[LogMessage]:
    """Return the prompt and a reply, whose beginning may be the prompt, as one dialogue, with the
    prompt's system prompt, else the reply's."""
    lead, asked = (list(takewhile(lambda m: m.role == "system", part)) for part in (reply, prompt))
    said, body = prompt[len(asked) :], reply[len(lead) :]
    before, after = ([(m.role, m.text.strip()) for m in part] for part in (said, body))
    is_whole = len(after) > len(before) and after[: len(before)] == before
    return (asked or lead) + said + (body[len(said) :] if is_whole else body)
