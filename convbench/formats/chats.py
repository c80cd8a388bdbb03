"""A chat in any shape: a dialogue, a request or response of a model, a text; in rows of sets as in
what programs that trace models log, there often as JSON text in JSON text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from typing import Any

from convbench.formats import dialects
from convbench.formats.dialects import ROLES, read_content, text_in
from convbench.formats.log import LogMessage, Role
from convbench.formats.values import as_mapping, as_text, first_of, kept, parsed, without_nulls

DIALOGUES = (
    *("conversations", "conversation", "messages", "dialogue", "dialog", "trajectory", "traj"),
    *("turns", "contents", "chat", "data", "input_messages", "output_messages", "prompts"),
)
"""Names of what holds a complete dialogue."""
INSIDE = (
    *("choices", "candidates", "generations", "output", "message", "kwargs", "args", "input"),
    *("prompt", "response", "completion", "completions", "raw", "content", "text", "full_text"),
    *("problem", "body", "gen_args_0", "arg_0"),
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
    """Return the role of a message as its source calls it, in small letters, else None."""
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
    kinds = (role_name, _exchange, lambda item: texts and isinstance(item, str))
    items = value if isinstance(value, list) else []
    return bool(items) and any(all(map(is_kind, items)) for is_kind in kinds)


def _exchange(item: Any) -> tuple[Any, Any] | None:
    """Return (what was asked, what was said) of an object or list of both."""
    if isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
        return item[0], item[1]
    fields = item if isinstance(item, dict) else {}
    asked, said = (next((k for k in names if k in fields), None) for names in (ASKED, SAID))
    return (fields[asked], fields[said]) if asked and said else None


def interleave(texts: Iterable[Any]) -> list[LogMessage]:
    """Return the messages of texts that were said in turn, the user's first."""
    roles: tuple[Role, Role] = ("user", "assistant")
    return [LogMessage(roles[number % 2], as_text(text)) for number, text in enumerate(texts)]


def read_dialogue(value: Any) -> list[LogMessage]:
    """Return the messages of a dialogue; a message that is a call belongs to the words of the
    assistant before it. Raise LeftOut for an unknown role or a call that cannot be read."""
    value = parsed(value)
    if isinstance(value, dict) and not role_name(value):
        return read_dialogue(next(value[k] for k in DIALOGUES if is_dialogue(value.get(k))))
    items = value if isinstance(value, list) else [value]
    if not role_name(items[0]):
        return interleave(text for item in items for text in (_exchange(item) or [item]))
    out: list[LogMessage] = []
    for number, item in enumerate(items):
        messages = dialects.read_message({"role": role_name(item), **without_nulls(item)})
        if role_name(item) in dialects.CALL_ROLES and out and out[-1].role == "assistant":
            messages[0].group = out[-1].group = out[-1].group or f"reply {number}"
        out += messages
    return out


def marked(text: str) -> list[LogMessage]:
    """Return the messages of a dialogue that is one text, "Human: … Assistant: …"; none if it does
    not begin with a marker, or all its markers are of one kind. An open last marker is no turn."""
    before, *rest = MARK.split(text)
    roles = [ROLES[name.lower()] for name in rest[::2]]
    if before.strip() or len(set(roles)) < 2:
        return []
    texts = [said.replace("<|endoftext|>", "").strip() for said in rest[1::2]]
    messages = [LogMessage(role, said) for role, said in zip(roles, texts, strict=True)]
    return messages if texts[-1] else messages[:-1]


def is_call(item: Any) -> bool:
    """Return whether a value is a call alone: a name with arguments."""
    return isinstance(item, dict) and "name" in item and "arguments" in item


def read_chat(value: Any, role: Role, depth: int = 0) -> list[LogMessage]:
    """Return the messages in a value of any shape, of which a text, a part or a call is said by
    `role`. Raise LeftOut for an unknown role or a call that cannot be read."""
    value = parsed(value)
    if value in (None, "", "None", [], {}) or depth > 6:
        return []
    if isinstance(value, str):
        printed = REPR.findall(value) if value.startswith("role='") else []
        if printed:
            return [LogMessage(ROLES[who], text_in(parsed(f"[{said}]"))) for who, said in printed]
        return marked(value) or [LogMessage(role, value)]
    system = _system(value) if isinstance(value, dict) else ""
    if is_dialogue(value) and not system:
        return read_dialogue(value)
    if isinstance(value, list):
        return _read_list(value, role, depth + 1)
    if not isinstance(value, dict):
        return []
    if isinstance(value.get("id"), list) and "kwargs" in value:  # LangChain's own JSON
        return read_chat({"type": value["id"][-1], **as_mapping(value["kwargs"])}, role, depth + 1)
    key = next(iter(kept(value, "parts", *DIALOGUES, *INSIDE)), None)
    inner = value.get(key)
    said = read_content(inner, role) if key == "parts" else read_chat(inner, role, depth + 1)
    if said:
        said[-1].finish = first_of(value, "finish_reason", "stop_reason") or said[-1].finish
    return ([LogMessage("system", system)] if system else []) + said


def _read_list(values: list[Any], role: Role, depth: int) -> list[LogMessage]:
    objects = all(isinstance(value, dict) for value in values)
    if objects and all(value.get("type") in ITEMS for value in values if not role_name(value)):
        return dialects.response_items(values)
    if objects and all(map(is_call, values)):
        return [LogMessage(role, calls=[dialects.as_call(value) for value in values])]
    signs = {"text", "type", "toolName"}
    if objects and all(signs & value.keys() and "message" not in value for value in values):
        parts = [{"type": "tool_call", **v} if "toolName" in v else v for v in values]
        return [m for m in read_content(parts, role) if m.text or m.reasoning or m.calls]
    if all(isinstance(value, list) for value in values):
        values = values[0]  # of a batch, one is one conversation
    return [message for value in values for message in read_chat(value, role, depth)]


def system_text(value: Any) -> str:
    """Return the text of a system prompt: a text, parts, or an object of parts."""
    return text_in(value["parts"] if isinstance(value, dict) and "parts" in value else value)


def _system(fields: dict[str, Any]) -> str:
    holders = (fields, as_mapping(fields.get("config")))
    found = (system_text(value) for place in holders for value in kept(place, *SYSTEMS).values())
    return next(filter(None, found), "")


def read_exchange(asked: Any, said: Any, **own: Any) -> list[LogMessage]:
    """Return the messages of a call: its input and, if it does not end with it, its output; `own`
    are fields of the reply that the log says beside it."""
    messages, reply = read_chat(asked, "user"), read_chat(said, "assistant")
    reply = [m if m.role == "system" else replace(m, **own) for m in reply]
    return joined(messages, reply)


def joined(prompt: list[LogMessage], reply: list[LogMessage]) -> list[LogMessage]:
    """Return the prompt and a reply, whose beginning may be the prompt, as one dialogue, with the
    prompt's system prompt, else the reply's."""
    lead, asked = (list(takewhile(lambda m: m.role == "system", part)) for part in (reply, prompt))
    said, body = prompt[len(asked) :], reply[len(lead) :]
    before, after = ([(m.role, m.text.strip()) for m in part] for part in (said, body))
    is_whole = len(after) > len(before) and after[: len(before)] == before
    return (asked or lead) + said + (body[len(said) :] if is_whole else body)
