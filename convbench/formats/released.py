"""Trajectories as ColBench's authors release them (Zhou et al. 2025), as rows of ours.

One line of their offline trajectories and of what their programs write: `task` with the request
and what is hidden, `dialogue_history` with the messages (an agent's holds its whole reply as
`output`, and as `input` the rendered prompt it answered), `answer`, `reward`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from convbench.errors import DataError

HISTORY = "dialogue_history"
HIDDEN = {"ground_truth": "reference", "test_cases": "tests", "hidden_information": "information"}
"""Their names of hidden fields, and ours (tasks `colbench-backend`, `colbench-frontend`)."""
_SYSTEM = re.compile(
    r"\A(?:<\|begin_of_text\|>)?<\|start_header_id\|>system<\|end_header_id\|>\s*+"
    r"(?:Cutting Knowledge Date:[^\n]*+\nToday Date:[^\n<]*+\s*+)?(.*?)<\|eot_id\|>",
    re.DOTALL,
)
"""The system prompt in a prompt rendered with Llama 3's template, without its own two lines."""


def is_released(row: Mapping[str, Any]) -> bool:
    """Whether a row has this shape."""
    return isinstance(row.get("task"), dict) and isinstance(row.get(HISTORY), list)


def as_ours(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the row with our keys; all that has no place with us goes to the metadata."""
    task = dict(row["task"])
    question = task.pop("problem_description", None)
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{where}: task.problem_description: found none; expected the request")
    hidden = {ours: task.pop(name) for name, ours in HIDDEN.items() if task.get(name) is not None}
    for name, ours in HIDDEN.items():  # some files have it beside the task
        if ours not in hidden and row.get(name) is not None:
            hidden[ours] = row[name]
    known = {"task", HISTORY, "reward", *HIDDEN}
    rest = {key: value for key, value in row.items() if key not in known and value is not None}
    messages = [_message(item, f"{where}: {HISTORY}[{i}]") for i, item in enumerate(row[HISTORY])]
    while messages and messages[-1]["role"] == "user":  # what nobody answered
        messages.pop()
    return {
        "messages": [*_system(row[HISTORY]), *messages],
        "question": question,
        "hidden": hidden,
        "reward": row.get("reward"),
        "metadata": {**rest, **({"task": task} if task else {})},
    }


def _message(item: object, where: str) -> dict[str, Any]:
    if not isinstance(item, dict) or not isinstance(item.get("content"), str):
        raise DataError(f"{where}: expected an object with role and content")
    role = {"agent": "assistant", "human": "user"}.get(str(item.get("role")), item.get("role"))
    whole = item.get("output")  # with what it thought before OUTPUT:
    said = whole if role == "assistant" and isinstance(whole, str) else item["content"]
    return {"role": role, "content": said}


def _system(history: list[Any]) -> list[dict[str, Any]]:
    """Return the system prompt of the first rendered prompt, where one can be read."""
    prompts = (item.get("input") for item in history if isinstance(item, dict))
    first = next((text for text in prompts if isinstance(text, str)), "")
    found = _SYSTEM.match(first[:100_000])
    text = found[1].strip() if found else ""
    return [{"role": "system", "content": text}] if text else []
