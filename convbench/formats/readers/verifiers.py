"""verifiers' results.jsonl before 0.4: prompt, completion, reward, and rewards named after their
functions as columns; and traces.jsonl of 0.4: an episode a line, whose traces are trees of
messages, of which each path from the root to a leaf is a conversation."""

from typing import Any

from convbench.formats.chats import read_chat
from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, as_text, at

KNOWN = ("prompt", "completion", "reward", "answer", "id", "example_id", "info")


def recognises(first: object) -> bool:
    """A row of the results, or an episode."""
    names = as_mapping(first).keys()
    is_row = {"prompt", "completion", "reward", "task"} <= names
    return (is_row and bool({"id", "example_id"} & names)) or {"traces", "env"} <= names


def read(record: Any, where: str) -> Items:
    """Yield the rollout of a row, or each path of each trace. A failed episode without a message is
    left out, and so is an agent that is not trained."""
    if "traces" not in record:
        yield _read_row(record)
    for trace in record.get("traces", ()):
        errors = [*as_list(trace.get("errors")), *as_list(record.get("errors"))]
        nodes, kind = trace.get("nodes") or [], at(errors, 0, "type")
        if not nodes:
            yield LeftOut(f"{kind + ': ' if kind else ''}the episode failed before a word")
        elif at(trace, "agent", "trainable") is False:
            yield LeftOut("an agent that is not trained")
        else:
            parents = {node.get("parent") for node in nodes}
            for leaf in (index for index in range(len(nodes)) if index not in parents):
                log = _read_path(record, trace, leaf)
                log.failure = f"{kind}: {at(errors, 0, 'message')}" if errors else None
                yield log


def _read_row(record: Any) -> LogConversation:
    """Return the rollout of a row. Calls are JSON text in the list, and the results' ids were lost
    when it was saved, so results follow their calls."""
    info = as_mapping(record.get("info"))
    own = {k: v for k, v in record.items() if k not in KNOWN and v is not None}
    functions = {k: v for k, v in own.items() if not k.endswith(("_ms", "_seconds", "task"))}
    answer, tools = record.get("answer"), info.pop("oai_tools", None)
    return LogConversation(
        read_chat(record["prompt"], "user") + read_chat(record["completion"], "assistant"),
        task=record.get("example_id", record.get("id")),
        rewards=functions | {"reward": record["reward"]},
        hidden={"reference": answer} if answer else {},
        tools=tools,
        metadata=own | ({"info": info} if info else {}),
    )


def _read_path(record: Any, trace: Any, leaf: int) -> LogConversation:
    """Return the path from the root to a leaf; what the policy did not sample is context."""
    nodes, calls = trace["nodes"], {call.get("node"): call for call in trace.get("calls") or ()}
    path: list[int] = []
    at_node: int | None = leaf
    while at_node is not None and at_node not in path:
        path.append(at_node)
        at_node = nodes[at_node].get("parent")
    messages: list[LogMessage] = []
    for index in reversed(path):
        node, call = nodes[index], as_mapping(calls.get(index))
        own = {"model": call.get("model"), "finish": call.get("finish_reason")}
        own |= {"context": not node.get("sampled"), "usage": usage_of(call.get("usage"))}
        messages += read_message(node["message"], **own)
    task = as_mapping(trace.get("task") or record.get("task"))
    marks = as_mapping(trace.get("rewards"))
    scores = {k: n for k, v in marks.items() if (n := as_number(at(v, "score"))) is not None}
    total = sum(n * (as_number(at(marks[k], "weight")) or 0.0) for k, n in scores.items())
    answer = at(task, "data", "answer")
    return LogConversation(
        messages,
        id=f"{trace.get('id')}/{leaf}",
        task=as_text(task.get("key") or task.get("hash") or at(task, "data", "idx")),
        rewards=scores | ({"reward": total} if scores else {}),
        hidden={} if answer in (None, "") else {"reference": answer},
        tools=trace.get("tools"),
        time=at(trace, "timing", "start"),
        metadata={
            "episode": record.get("id"),
            "agent": at(trace, "agent", "name"),
            "stop_condition": trace.get("stop_condition"),
            "metrics": trace.get("metrics") or {},
        },
    )
