"""A chat in any shape: a dialogue, a request or response of a model, a text; in rows of sets as in
what programs that trace models log, there often as JSON text in JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from convbench.formats.dialects import (
    CALL_ROLES,
    ROLES,
    as_call,
    read_content,
    read_message,
    response_items,
    text_in,
)
from convbench.formats.log import LogMessage, Role
from convbench.formats.values import as_mapping, as_text, first_of, parsed, without_nulls

DIALOGUES = (
    *("conversations", "conversation", "messages", "dialogue", "dialog", "trajectory", "traj"),
    *("turns", "contents", "chat", "data", "input_messages", "output_messages", "prompts"),
)
"""Names of what holds a complete dialogue."""
INSIDE = (
    *("choices", "candidates", "generations", "output", "message", "kwargs", "args", "input"),
    *("prompt", "response", "completion", "completions", "raw", "content", "text", "full_text"),
    *("problem", "body"),
)
"""Keys under which a request or response holds the rest, in the order they are looked for."""
ASKED = ("user", "human", "input", "instruction")
SAID = ("assistant", "gpt", "output", "response")
"""Keys of an object that is a question with its answer."""
SYSTEMS = ("system", "instructions", "system_instruction", "systemInstruction")
ITEMS = ("function_call", "function_call_output", "reasoning", "message", "computer_call")
"""Types of items of Responses by which a list of them is known."""
MARK = re.compile(
    r"(?m)^[ \t]*(?:#+[ \t]*|<extra_id_\d>)?(human|hum|user|assistant|system)(?::[ \t]*|\n)", re.I
)
REPR = re.compile(r"role='(\w+)' content=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None)")
"""A message as Python prints it."""


def role_name(item: Any) -> str | None:
    """Return the role of an object that is a message, as its source calls it, in small letters;
    None for anything else."""
    fields = item if isinstance(item, dict) else {}
    name = first_of(fields, "role", "from")
    if name is None and "content" in fields and str(fields.get("type")).lower() in ROLES:
        name = fields["type"]
    return name.lower() if isinstance(name, str) else None


def is_dialogue(value: Any, *, texts: bool = False) -> bool:
    """Return whether a value is a dialogue by its shape: a list of objects with a role, of question
    and answer as an object or a list, or (with `texts`) of texts, the user's first; one such
    object; or an object that holds such a list."""
    value = parsed(value)
    if isinstance(value, dict):
        return bool(role_name(value)) or any(is_dialogue(value.get(name)) for name in DIALOGUES)
    if not isinstance(value, list) or not value:
        return False
    return (
        all(map(role_name, value))
        or all(map(_exchange, value))
        or (texts and all(isinstance(item, str) for item in value))
    )


def _exchange(item: Any) -> tuple[Any, Any] | None:
    """Return (what was asked, what was said) of an object or list of both."""
    if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
        return item[0], item[1]
    asked, said = (
        next((k for k in names if isinstance(item, dict) and k in item), None)
        for names in (ASKED, SAID)
    )
    return (item[asked], item[said]) if asked and said else None


def interleave(asked: Iterable[Any], said: Iterable[Any]) -> list[LogMessage]:
    """Return the messages of what was asked and what was said, in turn."""
    roles: tuple[Role, Role] = ("user", "assistant")
    pairs = zip(asked, said, strict=False)
    return [LogMessage(r, as_text(t)) for pair in pairs for r, t in zip(roles, pair, strict=True)]


def read_dialogue(value: Any) -> list[LogMessage]:
    """Return the messages of a dialogue; a message that is a call belongs to the words of the
    assistant before it. Raise LeftOut for an unknown role or a call that cannot be read."""
    value = parsed(value)
    if isinstance(value, dict) and not role_name(value):
        value = parsed(next(value[name] for name in DIALOGUES if is_dialogue(value.get(name))))
    items = value if isinstance(value, list) else [value]
    if isinstance(items[0], str):
        return [m for m in interleave(items[::2], [*items[1::2], ""]) if m.text]
    if not role_name(items[0]):
        return interleave(*zip(*filter(None, map(_exchange, items)), strict=True))
    out: list[LogMessage] = []
    for number, item in enumerate(items):
        messages = read_message({"role": role_name(item), **without_nulls(item)})
        if role_name(item) in CALL_ROLES and out and out[-1].role == "assistant":
            messages[0].group = out[-1].group = out[-1].group or f"reply {number}"
        out += messages
    return out


def marked(text: str) -> list[LogMessage]:
    """Return the messages of a dialogue that is one text, "Human: … Assistant: …"; none if it does
    not begin with a marker, or all its markers are of one kind. An open last marker is no turn."""
    found = list(MARK.finditer(text))
    names = ["user" if m[1].lower() == "hum" else m[1].lower() for m in found]
    if not found or text[: found[0].start()].strip() or len(set(names)) < 2:
        return []
    ends = [m.start() for m in found[1:]] + [len(text)]
    messages = [
        LogMessage(ROLES[name], text[m.end() : end].replace("<|endoftext|>", "").strip())
        for name, m, end in zip(names, found, ends, strict=True)
    ]
    return messages if messages[-1].text else messages[:-1]


def is_call(item: Any) -> bool:
    """Return whether a value is a call alone: a name with arguments."""
    return isinstance(item, dict) and "name" in item and "arguments" in item


def read_chat(value: Any, role: Role, depth: int = 0) -> list[LogMessage]:
    """Return the messages of a value of any shape, of which a text, a part or a call is said by
    `role`; none if there is nothing in it that anybody said.

    Raise LeftOut for an unknown role or a call that cannot be read.
    """
    value = parsed(value)
    if value in (None, "", "None", [], {}) or depth > 6:
        return []
    if isinstance(value, str):
        return _printed(value) or marked(value) or [LogMessage(role, value)]
    if is_dialogue(value) and not (isinstance(value, dict) and _system(value)):
        return read_dialogue(value)
    if isinstance(value, dict):
        return _read_object(value, role, depth + 1)
    return _read_list(value, role, depth + 1) if isinstance(value, list) else []


def _printed(text: str) -> list[LogMessage]:
    found = REPR.findall(text) if text.startswith("role='") else []
    return [
        LogMessage(ROLES[name], "" if said == "None" else as_text(parsed(f"[{said}]")[0]))
        for name, said in found
        if name in ROLES
    ]


def _read_list(values: list[Any], role: Role, depth: int) -> list[LogMessage]:
    objects = all(isinstance(value, dict) for value in values)
    if objects and all(value.get("type") in ITEMS for value in values if not role_name(value)):
        return response_items(values)
    if objects and all(map(is_call, values)):
        return [LogMessage(role, calls=[as_call(value) for value in values])]
    signs = {"text", "type", "toolName"}
    if objects and all(signs & value.keys() and "message" not in value for value in values):
        parts = [{"type": "tool_call", **v} if "toolName" in v else v for v in values]
        return [m for m in read_content(parts, role) if m.text or m.reasoning or m.calls]
    if all(isinstance(value, list) for value in values):
        values = values[0]  # of a batch, one is one conversation
    return [message for value in values for message in read_chat(value, role, depth)]


def _system(fields: Mapping[str, Any]) -> str:
    holders = (fields, as_mapping(fields.get("config")))
    found = [holder[name] for holder in holders for name in SYSTEMS if holder.get(name)]
    return next((text for value in found if (text := system_text(value))), "")


def system_text(value: Any) -> str:
    """Return the text of a system prompt: a text, parts, or an object of parts."""
    return text_in(value["parts"] if isinstance(value, dict) and "parts" in value else value)


def _read_object(fields: dict[str, Any], role: Role, depth: int) -> list[LogMessage]:
    if isinstance(fields.get("id"), list) and "kwargs" in fields:  # LangChain's own JSON
        return read_chat({"type": fields["id"][-1], **as_mapping(fields["kwargs"])}, role, depth)
    text = _system(fields)
    out = [LogMessage("system", text)] if text else []
    if "parts" in fields:
        return out + read_content(fields["parts"], role)
    key = next((k for k in (*DIALOGUES, *INSIDE) if fields.get(k) not in (None, "", [], {})), None)
    inner = read_chat(fields[key], role, depth) if key else []
    finish = first_of(fields, "finish_reason", "stop_reason")
    if finish and inner:
        inner[-1].finish = as_text(finish)
    return out + inner


def read_exchange(asked: Any, said: Any, **own: Any) -> list[LogMessage]:
    """Return the messages of a call: its input and, if it does not end with it, its output; `own`
    are fields of the reply that the log says beside it."""
    messages, reply = read_chat(asked, "user"), read_chat(said, "assistant")
    if len(reply) > len(messages) and same(reply[: len(messages)], messages):
        reply = reply[len(messages) :]
    if not any(message.role == "system" for message in messages):
        messages = [m for m in reply if m.role == "system"] + messages
    reply = [message for message in reply if message.role != "system"]
    for message in reply:
        for name, value in own.items():
            setattr(message, name, value)
    return messages + reply


def same(some: list[LogMessage], others: list[LogMessage]) -> bool:
    """Return whether two dialogues say the same, white space aside."""
    texts = ([(m.role, m.text.strip()) for m in messages] for messages in (some, others))
    return next(texts) == next(texts)


def joined(prompt: list[LogMessage], reply: list[LogMessage]) -> list[LogMessage]:
    """Return the prompt and a reply, whose beginning may be the prompt, as one dialogue."""
    asked, said = ([m for m in part if m.role != "system"] for part in (prompt, reply))
    if len(said) <= len(asked) or not same(asked, said[: len(asked)]):
        return prompt + reply
    if len(said) < len(reply):  # with a system prompt of its own
        return reply
    return [m for m in prompt if m.role == "system"] + reply
