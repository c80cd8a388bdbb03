"""Rows as ColBench's authors released them (SWEET-RL): an object `task`, a `dialogue_history`."""

import re
from typing import Any

from convbench.formats.log import Items, LogConversation, LogMessage, Role
from convbench.formats.values import at, first_of, kept

HIDDEN = {"ground_truth": "reference", "test_cases": "tests", "hidden_information": "information"}
DATES = re.compile(r"\A\s*+Cutting Knowledge Date:.*\nToday Date:.*")  # of Llama 3's template


def recognises(first: object) -> bool:
    return isinstance(at(first, "task"), dict) and isinstance(at(first, "dialogue_history"), list)


def read(record: Any, where: str) -> Items:
    """Yield the conversation of a row; of an agent's turn its whole output, reasoning included."""
    rest = {key: value for key, value in record.items() if value is not None}
    task, history = dict(rest.pop("task")), rest.pop("dialogue_history")
    log = LogConversation(question=str(task.pop("problem_description")))
    log.rewards = {"reward": rest.pop("reward", None)}
    for name, ours in HIDDEN.items():
        log.hidden |= kept({ours: task.pop(name, None) or rest.pop(name, None)}, ours)
    log.metadata = rest | kept({"task": task}, "task")
    prompt = next((i["input"] for i in history if isinstance(i.get("input"), str)), "")
    system = prompt.partition("system<|end_header_id|>")[2].partition("<|eot_id|>")[0]
    if system := DATES.sub("", system).strip():
        log.messages.append(LogMessage("system", system))
    for item in history:
        role: Role = "assistant" if item["role"] in ("agent", "assistant") else "user"
        log.messages.append(LogMessage(role, first_of(item, "output", "content")))
    while log.messages and log.messages[-1].role == "user":  # without a reply
        log.messages.pop()
    yield log
