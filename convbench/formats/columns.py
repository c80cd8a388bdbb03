"""The columns of a row of a set, by their shape: dialogues, prompts and replies, tools, scores.

Sets call one thing by a hundred names, so names are compared in snake_case, null, "" and [] are
absent, text that writes a list is that list, and whatever nobody asks for is metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convbench.formats.dialects import (
    CALL_ROLES,
    as_list,
    as_mapping,
    as_number,
    as_text,
    parsed,
    read_content,
    read_message,
    without_nulls,
)
from convbench.formats.log import LogMessage

DIALOGUES = (
    *("conversations", "conversation", "messages", "dialogue", "dialog", "trajectory", "traj"),
    *("turns", "contents", "chat", "data"),
)
"""Columns of a complete dialogue."""
PROMPTS = ("prompt", "question", "instruction", "query", "problem", "input", "inputs", "contents")
REPLIES = (
    *("completion", "response", "output", "outputs", "actual_output", "generation"),
    *("target", "targets", "answer", "solution", "answers"),
)
REFERENCES = ("answer", "solution", "target", "targets")
"""Replies that are a reference if there is another reply."""
INSIDE = ("raw", "text", "full_text", "problem", "content", "output", "completion", "prompt")
"""Keys under which an object holds the text of a prompt or reply."""
MARK = re.compile(
    r"(?m)^[ \t]*(?:#+[ \t]*|<extra_id_\d>)?(human|hum|user|assistant|system)(?::[ \t]*|\n)", re.I
)
THINK = re.compile(r"\A<think>\n(.*?)\n</think>\n\n", re.S)
"""Reasoning in tags before a text, as exports write it."""

Items = list[dict[str, Any]]
"""Messages as OpenAI writes them."""


def snake(name: str) -> str:
    """Return a name in snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-.]+", "_", str(name)).lower()


class Row:
    """A row's columns by their names in snake_case; those that were taken are no metadata."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.taken: set[str] = set()
        for name, raw in record.items():
            value = without_nulls(raw)
            key = snake(name)
            if value not in (None, "", [], {}) and key not in self.values:
                self.names[key], self.values[key] = str(name), value

    def __contains__(self, name: str) -> bool:
        return name in self.values and name not in self.taken

    def take(self, *names: str) -> Any:
        """Return the value of the first of these columns that is there and not taken, and take it;
        None without one."""
        for name in names:
            if name in self:
                self.taken.add(name)
                return self.values[name]
        return None

    def look(self, name: str) -> Any:
        """Return a column's value without taking it."""
        return self.values[name] if name in self else None

    def rest(self) -> dict[str, Any]:
        """Return the columns that nobody took, under their own names."""
        return {self.names[k]: v for k, v in self.values.items() if k not in self.taken}


def dialogue(value: Any, *, texts: bool = False) -> Items | None:
    """Return the messages of a value that is a dialogue by its shape; None for any other.

    That is a list of objects with a role, of question and answer as an object or a list, or (with
    `texts`) of texts, the user's first; one such object; or an object that holds such a list.
    """
    value = parsed(value)
    if isinstance(value, dict):
        if _is_message(value):
            return [value]
        return next((found for k in DIALOGUES if (found := dialogue(value.get(k)))), None)
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(item, dict) for item in value):
        if all(_is_message(item) for item in value):
            return [_own_text(item) for item in value]
        pairs = [_question_answer(item) for item in value]
        return [part for pair in pairs if pair for part in pair] if all(pairs) else None
    if all(isinstance(item, list) and len(item) == 2 for item in value):
        return interleave([item[0] for item in value], [item[1] for item in value])
    if texts and all(isinstance(item, str) for item in value):
        roles = ("user", "assistant")
        return [{"role": roles[i % 2], "content": text} for i, text in enumerate(value)]
    return None


def role_of(item: Mapping[str, Any]) -> str:
    """Return the role of a message as its source calls it, in small letters."""
    return str(item.get("role", item.get("from"))).lower()


def _is_message(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("role", item.get("from")), str)


def _own_text(item: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose text may stand under a key of its own, as a system prompt's does."""
    if "system_prompt" in item and not any(item.get(k) for k in ("content", "value", "text")):
        return {**item, "content": item["system_prompt"]}
    return item


def _question_answer(item: Mapping[str, Any]) -> Items | None:
    asked = next((k for k in ("user", "human", "input", "instruction") if k in item), None)
    said = next((k for k in ("assistant", "gpt", "output", "response") if k in item), None)
    if asked is None or said is None:
        return None
    return interleave([item[asked]], [item[said]])


def interleave(asked: Sequence[Any], said: Sequence[Any]) -> Items:
    """Return the messages of parallel lists of what was asked and what was said."""
    return [
        {"role": role, "content": as_text(text)}
        for pair in zip(asked, said, strict=True)
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def marked(text: str) -> Items | None:
    """Return the messages of a dialogue that is one text, "Human: … Assistant: …"; None if it does
    not begin with a marker, or all its markers are of one kind. An open last marker is no turn."""
    found = list(MARK.finditer(text))
    if not found or text[: found[0].start()].strip():
        return None
    names = ["user" if m[1].lower() == "hum" else m[1].lower() for m in found]
    if len(set(names)) < 2:
        return None
    ends = [m.start() for m in found[1:]] + [len(text)]
    items = [
        {"role": name, "content": text[m.end() : end].replace("<|endoftext|>", "").strip()}
        for name, m, end in zip(names, found, ends, strict=True)
    ]
    return items[:-1] if not items[-1]["content"] else items


def as_items(value: Any, role: str) -> Items:
    """Return the messages of a prompt or a reply: a dialogue, a text, calls of tools, or an object
    that holds one of them."""
    value = parsed(value)
    found = dialogue(value)
    if found is not None:
        return found
    if isinstance(value, list) and value and all(is_call(item) for item in value):
        return [{"role": role, "content": "", "tool_calls": value}]
    if isinstance(value, dict):
        inner = next((value[k] for k in INSIDE if value.get(k) not in (None, "")), None)
        if "parts" in value:
            return [{"role": role, **value}]
        return as_items(inner, role) if inner is not None else []
    if isinstance(value, list):
        return [{"role": role, "content": value}]
    text = as_text(value)
    return marked(text) or [{"role": role, "content": text}]


def is_call(item: Any) -> bool:
    """Return whether a value is a call alone: a name with arguments."""
    return isinstance(item, dict) and "name" in item and "arguments" in item


def read_chat(items: Sequence[Mapping[str, Any]]) -> list[LogMessage]:
    """Return the messages of a dialogue; a message that is a call belongs to the words of the
    assistant before it, and reasoning in tags before a text to its message.

    Raise LeftOut for an unknown role or a call that cannot be read.
    """
    out: list[LogMessage] = []
    for number, item in enumerate(items):
        messages = read_message(without_nulls(dict(item)))
        calls = role_of(item) in CALL_ROLES
        if calls and out and out[-1].role == "assistant":
            messages[0].group = out[-1].group = out[-1].group or f"reply {number}"
        for message in messages:
            match = THINK.match(message.text) if message.role == "assistant" else None
            if match and not message.reasoning:
                message.reasoning, message.text = match[1], message.text[match.end() :]
        out += messages
    return out


def same_items(some: Items, others: Items) -> bool:
    """Return whether two dialogues say the same, systems and white space aside."""
    return [_said(item) for item in without_system(some)] == [
        _said(item) for item in without_system(others)
    ]


def _said(item: Mapping[str, Any]) -> str:
    value = next((item[k] for k in ("content", "value", "text", "parts") if k in item), "")
    return read_content(value).text.strip()


def without_system(items: Items) -> Items:
    """Return the messages that are not the system's."""
    return [i for i in items if role_of(i) not in ("system", "developer")]


def joined(prompt: Items, reply: Items) -> Items:
    """Return the prompt and a reply, whose beginning may be the prompt, as one dialogue."""
    length = len(without_system(prompt))
    begins = len(reply) > length and same_items(prompt, without_system(reply)[:length])
    if not begins:
        return prompt + reply
    named = len(without_system(reply)) < len(reply)
    return reply if named else [i for i in prompt if i not in without_system(prompt)] + reply


def take_system(row: Row) -> Items:
    """Take a row's system prompt: the messages it is, at most one."""
    inner = as_mapping(row.look("chat_template_kwargs")).get("custom_instructions")
    value = (
        row.take("system", "system_prompt", "system_instruction", "custom_instructions") or inner
    )
    if isinstance(value, dict) and "parts" in value:
        value = value["parts"]
    text = read_content(value).text
    return [{"role": "system", "content": text}] if text else []


def take_tools(row: Row, *places: Any) -> list[dict[str, Any]]:
    """Take the tools that were offered: of the row, of `places` in it, or of its first message."""
    values = [row.take("tools"), row.take("functions")]
    inner = as_mapping(row.look("chat_template_kwargs"))
    values += [inner.get("xml_tools"), inner.get("python_tools")]
    values += [as_mapping(place).get(key) for place in places for key in ("tools", "functions")]
    return next((found for value in values if (found := wire_tools(value))), [])


def wire_tools(value: Any) -> list[dict[str, Any]]:
    """Return tools as the chat API takes them, from a list of them in any of its forms: wrapped or
    bare, as objects or as JSON text; parameters that are no schema become its properties."""
    tools = []
    for item in as_list(value):
        fields = as_mapping(item)
        function = as_mapping(fields.get("function")) or fields
        if not isinstance(function.get("name"), str):
            continue
        keys = ("parameters", "input_schema", "inputSchema")
        schema = as_mapping(next((function[key] for key in keys if function.get(key)), {}))
        if schema.get("type") != "object":
            schema = {"type": "object", "properties": schema}
        about = as_text(function.get("description"))
        tools.append({"name": function["name"], "description": about, "parameters": schema})
    return [{"type": "function", "function": tool} for tool in tools]


def take_rewards(row: Row) -> dict[str, float]:
    """Take the scores of a row by name; `reward` is the main one, and is missing if it cannot be
    told. Not rescaled."""
    scores: dict[str, float] = {}
    for name in ("reward", "rewards", "score", "scores", "rating", "metrics_data"):
        if name in row and (found := named_scores(row.look(name))):
            row.take(name)
            return scores | found
    ends = [n for n in row.values if n.endswith(("_reward", "_score")) and n in row]
    if len(ends) == 1 and (number := as_number(row.look(ends[0]))) is not None:
        row.take(ends[0])
        return {"reward": number}
    for name in ("label", "kto_tag", "resolved", "target", "passed", "success", "correct"):
        value = row.look(name)
        number = as_number(value)
        if number in (0, 1) and not (name == "target" and not isinstance(value, bool)):
            row.take(name)
            return {"reward": float(number or 0)}
    return scores


def named_scores(value: Any) -> dict[str, float]:
    """Return scores by name: of a number, of rewards of turns, which are summed, of a mapping, or
    of a list of {name, score}. `reward` is the only one, the one of that name, or `overall…`."""
    value = parsed(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(item.get("name")): item.get("score") for item in value}
    if isinstance(value, list):
        numbers = [as_number(item) for item in value]
        return {"reward": sum(n or 0.0 for n in numbers)} if numbers and None not in numbers else {}
    if not isinstance(value, dict):
        number = as_number(value)
        return {} if number is None else {"reward": number}
    scores = {str(k): number for k, v in value.items() if (number := as_number(v)) is not None}
    main = next((k for k in scores if k == "reward" or k.startswith("overall")), None)
    main = main or (next(iter(scores)) if len(scores) == 1 else None)
    return scores | ({"reward": scores[main]} if main else {})


def verdict(row: Row, base: str, first: str, second: str) -> tuple[float, float] | None:
    """Take the verdict about two replies of one question, in columns that end in `first` and
    `second`; return their rewards, or None without one."""
    for name in ("score", "rating", "reward", f"{base}_score", "human_score"):
        scores = [as_number(row.look(f"{name}{end}")) for end in (first, second)]
        if scores[0] is not None and scores[1] is not None:
            row.take(f"{name}{first}")
            row.take(f"{name}{second}")
            return scores[0], scores[1]
    if "winner_model_a" in row:
        marks = [as_number(row.take(f"winner_{n}")) for n in ("model_a", "model_b", "tie")]
        return {0: (1.0, 0.0), 1: (0.0, 1.0)}.get(
            marks.index(1.0) if 1.0 in marks else 2, (0.5, 0.5)
        )
    for name in ("winner", "label", "preference", "better", "labels"):
        word = str(row.look(name) if name in row else "").lower().strip()
        if word.startswith(("tie", "both", "a=b")) or word in ("draw", "equal"):
            row.take(name)
            return 0.5, 0.5
        side = re.fullmatch(r"(?:model_|response_|assistant_)?([ab])(?:>+[ab])?", word)
        if side:
            row.take(name)
            return (1.0, 0.0) if side[1] == "a" else (0.0, 1.0)
    for name in ("overall_preference", "preference_strength"):
        number = as_number(row.take(name))
        if number is not None:
            return (float(number < 0), float(number > 0)) if number else (0.5, 0.5)
    number = as_number(row.take("better_response_id", "choice", "chosen_index"))
    if number in (0, 1):
        return (1.0, 0.0) if number == 0 else (0.0, 1.0)
    number = as_number(row.take("preference"))
    if number is not None:
        return (0.5, 0.5) if number in (0, 1.5) else (float(number < 1.5), float(number > 1.5))
    number = as_number(row.take("labels"))
    return None if number not in (0, 1) else (float(number == 1), float(number == 0))


TWINS = (
    *("conversation", "messages", "response", "answer", "output", "completion", "summary"),
    "human_ref",
)
ENDS = (("_a", "_b"), ("_0", "_1"), ("_1", "_2"), ("1", "2"))


def twins(row: Row) -> Iterator[tuple[str, str, str]]:
    """Yield (name, first ending, second ending) of each pair of replies in columns of one name."""
    for base in TWINS:
        for first, second in ENDS:
            if f"{base}{first}" in row and f"{base}{second}" in row:
                yield base, first, second
