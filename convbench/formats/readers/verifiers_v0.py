"""verifiers' results.jsonl before 0.4: prompt, completion, reward, and rewards named after their
functions as columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.chats import read_chat
from convbench.formats.log import LogConversation
from convbench.formats.values import as_mapping, kept

KNOWN = ("prompt", "completion", "reward", "task", "answer", "id", "example_id", "info")


def recognises(first: object) -> bool:
    """A row of the results."""
    row = first if isinstance(first, dict) else {}
    has_id = "id" in row or "example_id" in row
    return {"prompt", "completion", "reward", "task"} <= row.keys() and has_id


def read(record: Any, where: str) -> Iterator[LogConversation]:
    """Yield the rollout of a row. Calls are JSON text in the list, and the results' ids were lost
    when it was saved, so results follow their calls."""
    prompt, said = record["prompt"], record["completion"]
    info = as_mapping(record.get("info"))
    own = {k: v for k, v in record.items() if k not in KNOWN and v is not None}
    functions = {k: v for k, v in own.items() if not k.endswith(("_ms", "_seconds"))}
    answer = kept(record, "answer")
    yield LogConversation(
        read_chat(prompt, "user") + read_chat(said, "assistant"),
        task=record.get("example_id", record.get("id")),
        rewards=functions | {"reward": record["reward"]},
        hidden={"reference": answer["answer"]} if answer else {},
        tools=info.pop("oai_tools", None),
        metadata=own | ({"info": info} if info else {}) | {"task": record["task"]},
    )
