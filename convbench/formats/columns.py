"""The columns of a row of a set by their shape: system, tools, scores, verdicts about two replies.

Sets call one thing by a hundred names, so names are compared in snake_case, null, "" and [] are
absent, text that writes a list is that list, and whatever nobody asks for is metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from convbench.formats.chats import is_call, is_dialogue, marked, read_chat
from convbench.formats.dialects import PERSONAL, text_in
from convbench.formats.log import LogMessage, Role
from convbench.formats.values import (
    as_list,
    as_mapping,
    as_number,
    as_text,
    first_of,
    parsed,
    without_nulls,
)

TWINS = (
    *("conversation", "messages", "response", "answer", "output", "completion", "summary"),
    "human_ref",
)
ENDS = (("_a", "_b"), ("_0", "_1"), ("_1", "_2"), ("1", "2"))
SCORES = (
    *("reward", "rewards", "score", "scores", "rating", "metrics_data", "feedback_scores"),
    "feedback",
)
LABELS = ("label", "kto_tag", "resolved", "target", "passed", "success", "correct", "feedback")
"""Columns that are 1 or true for a good reply, 0 or false for a bad one."""
THUMBS = {
    **dict.fromkeys(("positive", "up", "thumbs_up", "like", "good"), 1.0),
    **dict.fromkeys(("negative", "down", "thumbs_down", "dislike", "bad"), 0.0),
}
"""What people say of a reply in one word."""
SIGNS = {"a": -1.0, "b": 1.0, "tie": 0.0, "both": 0.0, "draw": 0.0, "equal": 0.0, "a=b": 0.0}
"""Which reply is better by the word that a verdict begins with: below 0 the first."""
WORD = re.compile(r"(?:model_|response_|assistant_)?([ab])(?:>+[ab])?|(tie|both|draw|equal|a=b).*")


def snake(name: str) -> str:
    """Return a name in snake_case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s\-.]+", "_", str(name)).lower()


class Row:
    """A row's columns by their names in snake_case; those that were taken are no metadata."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.taken: set[str] = set()
        self.personal = 0
        """Columns that are not kept."""
        for name, raw in record.items():
            value, key = without_nulls(raw), snake(name)
            if key in PERSONAL:
                self.personal += 1
            elif value not in (None, "", [], {}) and key not in self.values:
                self.names[key], self.values[key] = str(name), value

    def __contains__(self, name: str) -> bool:
        return name in self.values and name not in self.taken

    def first(self, *names: str) -> str | None:
        """Return the first of these columns that is there and not taken; None without one."""
        return next((name for name in names if name in self), None)

    def take(self, *names: str) -> Any:
        """Return the value of the first of these columns that is there and not taken, and take it;
        None without one."""
        name = self.first(*names)
        if name is None:
            return None
        self.taken.add(name)
        return self.values[name]

    def look(self, *names: str) -> Any:
        """Return that value without taking it."""
        name = self.first(*names)
        return None if name is None else self.values[name]

    def take_numbers(self, *names: str) -> list[float] | None:
        """Take these columns if all of them hold numbers, and return those; else None."""
        numbers = [as_number(self.look(name)) for name in names]
        if None in numbers:
            return None
        self.taken.update(names)
        return [number for number in numbers if number is not None]

    def rest(self) -> dict[str, Any]:
        """Return the columns that nobody took, under their own names."""
        return {self.names[k]: v for k, v in self.values.items() if k not in self.taken}


def spoken(value: Any, role: Role) -> list[LogMessage]:
    """Return the messages of a prompt or a reply. A text is what was said, also one that is JSON,
    unless that is a dialogue or calls of tools."""
    read = parsed(value)
    is_text = isinstance(value, str) and not is_dialogue(read)
    if is_text and not (found := calls_alone(read)):
        return marked(str(value)) or [LogMessage(role, str(value))]
    return found if is_text else read_chat(read, role)


def first_text(value: Any) -> Any:
    """Return the first text within a value; None without one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    texts = (first_text(item) for item in inner)
    return value if isinstance(value, str) else next((t for t in texts if t is not None), None)


def calls_alone(value: Any) -> list[LogMessage]:
    """Return the message of a reply that is calls of tools alone; none for any other value."""
    items = as_list(value)
    return read_chat(items, "assistant") if items and all(map(is_call, items)) else []


def take_system(row: Row) -> list[LogMessage]:
    """Take a row's system prompt: the messages it is, at most one."""
    inner = as_mapping(row.look("chat_template_kwargs")).get("custom_instructions")
    names = ("system", "system_prompt", "system_instruction", "custom_instructions")
    value = row.take(*names) or inner
    parts = value["parts"] if isinstance(value, dict) and "parts" in value else value
    return [LogMessage("system", text)] if (text := text_in(parts)) else []


def take_tools(row: Row) -> Any:
    """Take the tools that were offered: of the row, its input, its settings or a message."""
    places = [as_mapping(row.look("input")), as_mapping(row.look("chat_template_kwargs"))]
    places += [as_mapping(item) for value in row.values.values() for item in as_list(value)[:2]]
    names = ("tools", "functions", "xml_tools", "python_tools")
    values = [row.take("tools"), row.take("functions")]
    values += [first_of(place, *names) for place in places]
    return next((value for value in values if wire_tools(value)), None)


def wire_tools(value: Any) -> list[dict[str, Any]]:
    """Return tools as the chat API takes them, from a list of them in any of its forms: wrapped or
    bare, as objects or as JSON text; parameters that are no schema become its properties."""
    tools = []
    for fields in map(as_mapping, as_list(value)):
        function = as_mapping(first_of(fields, "function", "toolSpec")) or fields
        if not isinstance(function.get("name"), str):
            continue
        schema = as_mapping(first_of(function, "parameters", "input_schema", "inputSchema"))
        schema = as_mapping(schema.get("json")) or schema
        if not isinstance(schema.get("properties"), dict):
            schema = {} if schema.get("type") == "object" else {"properties": schema}
        schema = {**schema, "type": "object"}
        about = as_text(function.get("description"))
        tools.append({"name": function["name"], "description": about, "parameters": schema})
    return [{"type": "function", "function": tool} for tool in tools]


def take_rewards(row: Row) -> dict[str, float]:
    """Take the scores of a row by name, from the first place that has them. Not rescaled."""
    for name in SCORES:
        if found := named_scores(row.look(name)):
            row.take(name)
            return found
    ends = [name for name in row.values if name.endswith(("_reward", "_score"))]
    if len(ends) == 1 and (numbers := row.take_numbers(*ends)):
        return {"reward": numbers[0]}
    for name in LABELS:
        value = row.look(name)
        number = THUMBS.get(snake(value)) if isinstance(value, str) else as_number(value)
        number = as_number(value) if number is None else number
        if number in (0, 1) and (name != "target" or isinstance(value, bool)):
            row.take(name)
            return {"reward": float(number or 0)}
    return {}


def named_scores(value: Any) -> dict[str, float]:
    """Return scores by name: of a number, of rewards of turns, which are summed, of a mapping, or
    of a list of {name, score}. `reward` is the only one, the one of that name, or `overall…`."""
    value = parsed(value)
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(first_of(i, "name", "key")): first_of(i, "score", "value") for i in value}
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


def twins(row: Row) -> Iterator[tuple[str, str, str]]:
    """Yield (name, first ending, second ending) of each pair of replies in columns of one name."""
    for base in TWINS:
        for first, second in ENDS:
            if f"{base}{first}" in row and f"{base}{second}" in row:
                yield base, first, second


def take_verdict(row: Row, base: str, first: str, second: str) -> list[float] | None:
    """Take the verdict about two replies of one question, in columns that end in `first` and
    `second`; return their rewards, or None without one."""
    for name in ("score", "rating", "reward", f"{base}_score", "human_score"):
        if numbers := row.take_numbers(f"{name}{first}", f"{name}{second}"):
            return numbers
    sign = _better(row)
    if sign is None:
        return None
    return [float(sign < 0), float(sign > 0)] if sign else [0.5, 0.5]


def _better(row: Row) -> float | None:
    """Return which of two replies is better, below 0 the first, 0 for a tie; None if it is not
    said. The column is taken."""
    if hot := row.take_numbers("winner_model_a", "winner_model_b"):
        row.take("winner_tie")
        return hot[1] - hot[0]
    for name in ("winner", "label", "preference", "better", "labels"):
        word = WORD.fullmatch(str(row.look(name)).lower().strip())
        if word:
            row.take(name)
            return SIGNS[word[1] or word[2]]
    if signed := row.take_numbers("overall_preference") or row.take_numbers("preference_strength"):
        return signed[0]
    index = as_number(row.look("better_response_id", "choice", "chosen_index"))
    if index in (0, 1):
        row.take("better_response_id", "choice", "chosen_index")
        return 2 * (index or 0) - 1
    if preferred := row.take_numbers("preference"):  # from 1 to 2, or 0
        return 0.0 if preferred[0] in (0, 1.5) else preferred[0] - 1.5
    first = row.take_numbers("labels")  # 1: the first is better
    return 1 - 2 * first[0] if first else None
