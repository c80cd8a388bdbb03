"""Rows as ColBench's authors released them (SWEET-RL): an object `task`, a `dialogue_history`."""

import re
from typing import Any

from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import at, first_of

HIDDEN = {"ground_truth": "reference", "test_cases": "tests", "hidden_information": "information"}
"""Our name of a hidden field by theirs (tasks `colbench-backend`, `colbench-frontend`)."""
SYSTEM = re.compile(
    r"\A(?:<\|begin_of_text\|>)?<\|start_header_id\|>system<\|end_header_id\|>\s*+"
    r"(?:Cutting Knowledge Date:[^\n]*+\nToday Date:[^\n<]*+\s*+)?(.*?)<\|eot_id\|>",
    re.DOTALL,
)
"""The system prompt in one rendered with Llama 3's template, without the template's own lines."""


def recognises(first: object) -> bool:
    return isinstance(at(first, "task"), dict) and isinstance(at(first, "dialogue_history"), list)


def read(record: Any, where: str) -> Items:
    """Yield the conversation of a row; of an agent's turn its whole output, reasoning included."""
    task, history = dict(record["task"]), record["dialogue_history"]
    log = LogConversation(question=str(task.pop("problem_description")))
    for name, ours in HIDDEN.items():
        value = task.pop(name, None) or record.get(name)
        log.hidden |= {} if value is None else {ours: value}
    prompt = next((i["input"] for i in history if isinstance(i.get("input"), str)), "")
    match = SYSTEM.match(prompt[:100_000])
    if match and match[1].strip():
        log.messages.append(LogMessage("system", match[1].strip()))
    for item in history:
        own = item["role"] in ("agent", "assistant")
        text = first_of(item, "output", "content") if own else item["content"]
        log.messages.append(LogMessage("assistant" if own else "user", text))
    while log.messages and log.messages[-1].role == "user":  # without a reply
        log.messages.pop()
    known = {"task", "dialogue_history", "reward", *HIDDEN}
    log.rewards = {"reward": record.get("reward")}
    log.metadata = {k: v for k, v in record.items() if k not in known and v is not None}
    log.metadata |= {"task": task} if task else {}
    yield log
