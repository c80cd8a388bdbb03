"""Conversations as session traces, which the Hub's viewer shows turn by turn.

Source: the Hub's documentation, "Session Traces Format" (huggingface.co/docs/hub/
session-traces-format): a JSONL file a session, a header, then one message a line. The Hub renders
some known harnesses specially, and others in a generic way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from convbench.publish.portions import CALLS, THOUGHT, policy_view
from convbench.store import Run

FOLDER, FIRST = "traces", "traces/00001.jsonl"
HARNESS = "convbench"
MOST = 100
"""Most traces of one dataset. Each is a file, and the Hub recommends folders with few files."""


def write_traces(run: Run, folder: Path) -> None:
    """Write the first completed conversations as `traces/NUMBER.jsonl`, as the policy saw them."""
    protocol = run.manifest.protocol
    policy = run.manifest.cast[protocol.policy].model
    ended = (talk for talk in run.conversations() if talk.failure is None)
    for number, talk in enumerate(islice(ended, MOST), 1):
        header = _trace_header(run, talk.conversation_id)
        lines = [header, *(_trace_line(message, policy) for message in policy_view(protocol, talk))]
        file = folder / FOLDER / f"{number:05}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def name_by_id(folder: Path) -> None:
    """Rename the traces of a folder to their conversations' ids, as older datasets name them."""
    for file in sorted((folder / FOLDER).glob("*.jsonl")):
        with file.open("rb") as lines:
            name = orjson.loads(lines.readline())["id"]
        file.rename(file.with_name(f"{name}.jsonl"))


def _trace_header(run: Run, name: str) -> dict[str, Any]:
    title = f"{run.manifest.task.name}, {run.manifest.protocol.name}"
    return {"type": "session", "harness": HARNESS, "id": name, "name": title}


def _trace_line(message: Mapping[str, Any], policy: str) -> dict[str, Any]:
    return {"type": "message", "message": dict(_trace_fields(message, policy))}


def _trace_fields(message: Mapping[str, Any], policy: str) -> Iterator[tuple[str, Any]]:
    yield "role", message["role"]
    yield "content", message["content"] or ""
    if message.get(THOUGHT):
        yield "reasoningContent", message[THOUGHT]
    if message.get(CALLS):
        yield (
            "toolCalls",
            [{"id": call["id"], "function": dict(call["function"])} for call in message[CALLS]],
        )
    if message.get("tool_call_id"):
        yield "toolCallId", message["tool_call_id"]
    if message["role"] == "assistant":
        yield "model", policy
