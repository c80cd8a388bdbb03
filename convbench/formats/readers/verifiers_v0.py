"""verifiers' results.jsonl before 0.4: prompt, completion, reward, and rewards named after their
functions as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, read_message
from convbench.formats.log import LogConversation, LogMessage

KNOWN = ("prompt", "completion", "reward", "task", "answer", "id", "example_id", "info")


def recognises(first: object) -> bool:
    """A row of the results."""
    if not isinstance(first, dict) or not {"prompt", "completion", "reward"} <= first.keys():
        return False
    return "task" in first and ("id" in first or "example_id" in first)


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the rollout of a row. Calls are JSON text in the list, and the results' ids were lost
    when it was saved, so results follow their calls."""
    messages: list[LogMessage] = []
    for value, role in ((record["prompt"], "user"), (record["completion"], "assistant")):
        items = [{"role": role, "content": value}] if isinstance(value, str) else value
        messages += [part for item in items for part in read_message(item)]
    info = as_mapping(record.get("info"))
    reward = as_number(record["reward"])
    own = {k: v for k, v in record.items() if k not in KNOWN and v is not None}
    functions = {
        k: n for k, v in own.items() if (n := as_number(v)) is not None and not _is_time(k)
    }
    yield LogConversation(
        messages,
        task=str(record.get("example_id", record.get("id"))),
        rewards={} if reward is None else functions | {"reward": reward},
        hidden={} if record.get("answer") in (None, "") else {"reference": record["answer"]},
        tools=info.pop("oai_tools", None) or [],
        metadata=own | ({"info": info} if info else {}) | {"task": record["task"]},
    )


def _is_time(name: str) -> bool:
    return name.endswith(("_ms", "_seconds"))
