"""A chat in any shape: a dialogue, a request or response of a model, a text; in rows of sets as in
what programs that trace models log, there often as JSON text in JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
SYSTEMS = ("system", "instructions", "system_instruction", "systemInstruction")
UNREAD = ("from", "additional_kwargs", "system_prompt", "function_calls")
"""Keys of a message that are read here."""
KINDS = {
    **{"human": "user", "ai": "assistant", "HumanMessage": "user", "AIMessage": "assistant"},
    **{"AIMessageChunk": "assistant", "SystemMessage": "system", "ToolMessage": "tool"},
}
"""LangChain's types of messages."""
ITEMS = ("function_call", "function_call_output", "reasoning", "message", "computer_call")
"""Types of items of Responses by which a list of them is known."""
MARK = re.compile(
    r"(?m)^[ \t]*(?:#+[ \t]*|<extra_id_\d>)?(human|hum|user|assistant|system)(?::[ \t]*|\n)", re.I
)
THINK = re.compile(r"\A<think>\n(.*?)\n</think>\n\n", re.S)
"""Reasoning in tags before a text, as exports write it."""
REPR = re.compile(r"role='(\w+)' content=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|None)")
"""A message as Python prints it."""


def role_name(item: Any) -> str | None:
    """Return the role of an object that is a message, as its source calls it, in small letters;
    None for anything else."""
    if not isinstance(item, dict):
        return None
    name = first_of(item, "role", "from")
    if name is None and "content" in item:
        name = KINDS.get(str(item.get("type")), item.get("type"))
        name = name if str(name).lower() in ROLES else None
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
        all(role_name(item) for item in value)
        or all(_pair(item) for item in value)
        or (texts and all(isinstance(item, str) for item in value))
    )


def _pair(item: Any) -> tuple[Any, Any] | None:
    """Return (what was asked, what was said) of an object or list of both."""
    if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
        return item[0], item[1]
    if not isinstance(item, dict):
        return None
    asked = next((k for k in ("user", "human", "input", "instruction") if k in item), None)
    said = next((k for k in ("assistant", "gpt", "output", "response") if k in item), None)
    return (item[asked], item[said]) if asked and said else None


def interleave(pairs: Sequence[tuple[Any, Any]]) -> list[LogMessage]:
    """Return the messages of what was asked and what was said."""
    roles: tuple[Role, Role] = ("user", "assistant")
    return [
        LogMessage(role, as_text(text))
        for pair in pairs
        for role, text in zip(roles, pair, strict=True)
    ]


def read_dialogue(value: Any) -> list[LogMessage]:
    """Return the messages of a dialogue; a message that is a call belongs to the words of the
    assistant before it, and reasoning in tags before a text to its message.

    Raise LeftOut for an unknown role or a call that cannot be read.
    """
    value = parsed(value)
    if isinstance(value, dict) and not role_name(value):
        value = parsed(next(value[name] for name in DIALOGUES if is_dialogue(value.get(name))))
    items = value if isinstance(value, list) else [value]
    if not role_name(items[0]):
        if isinstance(items[0], str):
            items = list(zip(items[::2], [*items[1::2], None], strict=False))
            return [m for m in interleave(items) if m.text]
        return interleave([pair for item in items if (pair := _pair(item))])
    out: list[LogMessage] = []
    for number, item in enumerate(items):
        messages = _read_item(without_nulls(item))
        if role_name(item) in CALL_ROLES and out and out[-1].role == "assistant":
            messages[0].group = out[-1].group = out[-1].group or f"reply {number}"
        for message in messages:
            match = THINK.match(message.text) if message.role == "assistant" else None
            if match and not message.reasoning:
                message.reasoning, message.text = match[1], message.text[match.end() :]
        out += messages
    return out


def _read_item(item: dict[str, Any]) -> list[LogMessage]:
    """Return the messages of an object with a role. The definition of a tool, which some frameworks
    log among the messages, is none."""
    content = first_of(item, "content", "value", "parts", "text", "system_prompt")
    calls = item.get("tool_calls") or as_mapping(item.get("additional_kwargs")).get("tool_calls")
    if role_name(item) == "tool" and isinstance(content, dict) and "function" in content:
        return []
    if isinstance(content, str) and content.startswith('[{"function"'):
        calls, content = parsed(content), ""
    if isinstance(item.get("function_calls"), str):  # in words
        content = "\n".join(text for text in (content, item["function_calls"]) if text)
    rest = {k: v for k, v in item.items() if k not in UNREAD}
    return read_message({**rest, "role": role_name(item), "content": content, "tool_calls": calls})


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
    if isinstance(value, list):
        return _read_list(value, role, depth)
    return _read_object(value, role, depth) if isinstance(value, dict) else []


def _printed(text: str) -> list[LogMessage]:
    found = REPR.findall(text) if text.startswith("role='") else []
    return [
        LogMessage(ROLES[name], "" if said == "None" else as_text(parsed(f"[{said}]")[0]))
        for name, said in found
        if name in ROLES
    ]


def _read_list(values: list[Any], role: Role, depth: int) -> list[LogMessage]:
    objects = all(isinstance(value, dict) for value in values)
    bare = [value for value in values if not role_name(value)]
    if objects and all(value.get("type") in ITEMS for value in bare):
        return response_items(values)
    if objects and all(is_call(value) for value in values):
        return [LogMessage(role, calls=[as_call(value) for value in values])]
    signs = {"text", "type", "toolName"}
    if objects and all(signs & value.keys() and "message" not in value for value in values):
        parts = [{"type": "tool_call", **v} if "toolName" in v else v for v in values]
        return [m for m in read_content(parts, role) if m.text or m.reasoning or m.calls]
    if all(isinstance(value, list) for value in values):
        values = values[0]  # of a batch, one is one conversation
    return [message for value in values for message in read_chat(value, role, depth + 1)]


def _system(fields: Mapping[str, Any]) -> str:
    holders = (fields, as_mapping(fields.get("config")))
    found = [holder[name] for holder in holders for name in SYSTEMS if holder.get(name)]
    return next((text for value in found if (text := text_in(_parts(value)))), "")


def _parts(value: Any) -> Any:
    return value["parts"] if isinstance(value, dict) and "parts" in value else value


def _read_object(fields: dict[str, Any], role: Role, depth: int) -> list[LogMessage]:
    if isinstance(fields.get("id"), list) and "kwargs" in fields:  # LangChain's own JSON
        return read_chat(
            {"type": fields["id"][-1], **as_mapping(fields["kwargs"])}, role, depth + 1
        )
    text = _system(fields)
    out = [LogMessage("system", text)] if text else []
    if "parts" in fields:
        return out + read_content(fields["parts"], role)
    key = next((k for k in (*DIALOGUES, *INSIDE) if fields.get(k) not in (None, "", [], {})), None)
    inner = read_chat(fields[key], role, depth + 1) if key else []
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


def same(some: Sequence[LogMessage], others: Sequence[LogMessage]) -> bool:
    """Return whether two dialogues say the same, white space aside."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(
        (a.role, a.text.strip()) == (b.role, b.text.strip()) for a, b in pairs
    )


def joined(prompt: list[LogMessage], reply: list[LogMessage]) -> list[LogMessage]:
    """Return the prompt and a reply, whose beginning may be the prompt, as one dialogue."""
    asked, said = ([m for m in part if m.role != "system"] for part in (prompt, reply))
    if len(said) <= len(asked) or not same(asked, said[: len(asked)]):
        return prompt + reply
    if len(said) < len(reply):  # with a system prompt of its own
        return reply
    return [m for m in prompt if m.role == "system"] + reply
