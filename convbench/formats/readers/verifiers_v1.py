"""verifiers 0.4 traces.jsonl: an episode a line, whose traces are trees of messages; each path from
the root to a leaf is a conversation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Item, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, as_text


def recognises(first: object) -> bool:
    """An episode."""
    return isinstance(first, dict) and {"traces", "env"} <= first.keys()


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each path of each trace. A failed episode without a message is left out, and so is an
    agent that is not trained."""
    for trace in record["traces"]:
        nodes, errors = trace.get("nodes") or [], as_list(trace.get("errors"))
        errors = [as_mapping(error) for error in errors + as_list(record.get("errors"))]
        if not nodes:
            reason = f"{errors[0].get('type')}: " if errors else ""
            yield LeftOut(f"{reason}the episode failed before a word")
        elif as_mapping(trace.get("agent")).get("trainable") is False:
            yield LeftOut("an agent that is not trained")
        else:
            parents = {node.get("parent") for node in nodes}
            for leaf in (index for index in range(len(nodes)) if index not in parents):
                yield _read_path(record, trace, leaf, errors)


def _read_path(record: Any, trace: Any, leaf: int, errors: list[Any]) -> LogConversation:
    task = as_mapping(trace.get("task") or record.get("task"))
    data = as_mapping(task.get("data"))
    marks = {k: as_mapping(v) for k, v in as_mapping(trace.get("rewards")).items()}
    scores = {k: n for k, v in marks.items() if (n := as_number(v.get("score"))) is not None}
    total = sum(n * (as_number(marks[k].get("weight")) or 0.0) for k, n in scores.items())
    return LogConversation(
        _read_nodes(trace, leaf),
        id=f"{trace.get('id')}/{leaf}",
        task=as_text(task.get("key") or task.get("hash") or data.get("idx")),
        rewards=scores | ({"reward": total} if scores else {}),
        hidden={} if data.get("answer") in (None, "") else {"reference": data["answer"]},
        tools=trace.get("tools"),
        failure=f"{errors[0].get('type')}: {errors[0].get('message')}" if errors else None,
        time=as_mapping(trace.get("timing")).get("start"),
        metadata={
            "episode": record.get("id"),
            "agent": as_mapping(trace.get("agent")).get("name"),
            "stop_condition": trace.get("stop_condition"),
            "metrics": trace.get("metrics") or {},
        },
    )


def _read_nodes(trace: Any, leaf: int) -> list[LogMessage]:
    """Return the messages from the root to a leaf; what the policy did not sample is context."""
    nodes, calls = trace["nodes"], {call.get("node"): call for call in trace.get("calls") or ()}
    path: list[int] = []
    at: int | None = leaf
    while at is not None and at not in path:
        path.append(at)
        at = nodes[at].get("parent")
    messages: list[LogMessage] = []
    for index in reversed(path):
        call = as_mapping(calls.get(index))
        messages += read_message(
            nodes[index]["message"],
            model=call.get("model"),
            finish=call.get("finish_reason"),
            context=not nodes[index].get("sampled"),
            usage=usage_of(call.get("usage")),
        )
    return messages
