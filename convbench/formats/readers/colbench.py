"""Rows as ColBench's authors released them (SWEET-RL): an object `task`, a `dialogue_history`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.values import first_of

HIDDEN = {"ground_truth": "reference", "test_cases": "tests", "hidden_information": "information"}
"""Our name of a hidden field by theirs (tasks `colbench-backend`, `colbench-frontend`)."""
SYSTEM = re.compile(
    r"\A(?:<\|begin_of_text\|>)?<\|start_header_id\|>system<\|end_header_id\|>\s*+"
    r"(?:Cutting Knowledge Date:[^\n]*+\nToday Date:[^\n<]*+\s*+)?(.*?)<\|eot_id\|>",
    re.DOTALL,
)
"""The system prompt in one rendered with Llama 3's template, without the template's own lines."""


def recognises(first: object) -> bool:
    """A row of the release."""
    row = first if isinstance(first, dict) else {}
    return isinstance(row.get("task"), dict) and isinstance(row.get("dialogue_history"), list)


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the conversation of a row; of an agent's turn its whole output, reasoning included."""
    task, history = dict(record["task"]), record["dialogue_history"]
    values = {ours: task.pop(name, None) or record.get(name) for name, ours in HIDDEN.items()}
    question = str(task.pop("problem_description"))
    prompt = next((i["input"] for i in history if isinstance(i.get("input"), str)), "")
    match = SYSTEM.match(prompt[:100_000])
    messages = [LogMessage("system", match[1].strip())] if match and match[1].strip() else []
    for item in history:
        if item["role"] in ("agent", "assistant"):
            messages.append(LogMessage("assistant", first_of(item, "output", "content")))
        else:
            messages.append(LogMessage("user", item["content"]))
    while messages and messages[-1].role == "user":  # without a reply
        messages.pop()
    known = {"task", "dialogue_history", "reward", *HIDDEN}
    rest = {k: v for k, v in record.items() if k not in known and v is not None}
    yield LogConversation(
        messages,
        question=question,
        hidden={name: value for name, value in values.items() if value is not None},
        rewards={"reward": record.get("reward")},
        metadata=rest | ({"task": task} if task else {}),
    )
