"""verifiers 0.4 traces.jsonl: an episode a line, whose traces are trees of messages; each path from
the root to a leaf is a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, as_text, as_time, read_message
from convbench.formats.log import Item, LeftOut, LogConversation, LogMessage


def recognises(first: object) -> bool:
    """An episode."""
    return isinstance(first, dict) and {"traces", "env"} <= first.keys()


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each path of each trace. A failed episode without a message is left out."""
    for trace in record["traces"]:
        nodes = trace.get("nodes") or []
        errors = [
            as_mapping(e) for e in (*(trace.get("errors") or ()), *(record.get("errors") or ()))
        ]
        if not nodes:
            reason = f"{errors[0].get('type')}: " if errors else ""
            yield LeftOut(f"{reason}the episode failed before a word")
            continue
        calls = {call.get("node"): call for call in trace.get("calls") or ()}
        parents = {node.get("parent") for node in nodes}
        for leaf in (index for index in range(len(nodes)) if index not in parents):
            yield _read_path(record, trace, nodes, calls, leaf, errors)


def _read_path(
    record: Any, trace: Any, nodes: list[Any], calls: dict[Any, Any], leaf: int, errors: list[Any]
) -> LogConversation:
    path: list[int] = []
    at: int | None = leaf
    while at is not None and at not in path:
        path.append(at)
        at = nodes[at].get("parent")
    agent = as_mapping(trace.get("agent"))
    fixed = agent.get("trainable") is False
    messages: list[LogMessage] = []
    for index in reversed(path):
        node, call = nodes[index], as_mapping(calls.get(index))
        usage = as_mapping(call.get("usage"))
        parts = read_message(node["message"])
        for part in parts:
            part.model = call.get("model")
            part.finish = call.get("finish_reason")
            part.context = fixed or (part.role == "assistant" and not node.get("sampled"))
            part.usage = (usage.get("prompt_tokens"), usage.get("completion_tokens"), None)
        messages += parts
    if fixed:
        raise LeftOut("an agent that is not trained")
    marks = {k: as_mapping(v) for k, v in as_mapping(trace.get("rewards")).items()}
    scores = {k: n for k, v in marks.items() if (n := as_number(v.get("score"))) is not None}
    total = sum(n * (as_number(marks[k].get("weight")) or 0.0) for k, n in scores.items())
    task = as_mapping(trace.get("task") or record.get("task"))
    data = as_mapping(task.get("data"))
    failed = f"{errors[0].get('type')}: {errors[0].get('message')}" if errors else None
    return LogConversation(
        messages,
        id=f"{trace.get('id')}/{leaf}",
        task=as_text(task.get("key") or task.get("hash") or data.get("idx")) or None,
        rewards=scores | ({"reward": total} if scores else {}),
        hidden={} if data.get("answer") in (None, "") else {"reference": data["answer"]},
        tools=trace.get("tools") or [],
        failure=failed,
        time=as_time(as_mapping(trace.get("timing")).get("start")),
        metadata={
            "episode": record.get("id"),
            "agent": agent.get("name"),
            "stop_condition": trace.get("stop_condition"),
            "metrics": trace.get("metrics") or {},
        },
    )
