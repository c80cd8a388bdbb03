"""Episodes of verifiers since 0.4 (traces.jsonl), whose traces are trees of messages, of which
each path from the root to a leaf is a conversation; and older results.jsonl, whose rows are as
those of sets (`rows`)."""

from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Items, LeftOut, LogConversation
from convbench.formats.readers import rows
from convbench.formats.values import as_list, as_mapping, as_number, as_text, at


def recognises(first: object) -> bool:
    names = as_mapping(first).keys()
    is_row = {"prompt", "completion", "reward", "task"} <= names
    return (is_row and bool({"id", "example_id"} & names)) or {"traces", "env"} <= names


def read(record: Any, where: str) -> Items:
    """Yield each path of each trace. A failed episode without a message is left out, and so is an
    agent that is not trained."""
    if "completion" in record:
        if not record["completion"]:
            raise LeftOut("the completion was not stored")
        about = {"example_id": record.get("id"), "tools": at(record, "info", "oai_tools")}
        scores = {name: value for name, value in record.items() if "reward" in name}
        yield from rows.read({**about, **record, "reward": scores}, where)
    for trace in record.get("traces", ()):
        nodes, errors = trace.get("nodes") or [], as_list(trace.get("errors"))
        errors += as_list(record.get("errors"))
        failure = f"{at(errors, 0, 'type')}: {at(errors, 0, 'message')}" if errors else None
        parents = {node.get("parent") for node in nodes}
        if not nodes:
            reason = f"{at(errors, 0, 'type')}: " if errors else ""
            yield LeftOut(f"{reason}the episode failed before a word")
        elif at(trace, "agent", "trainable") is False:
            yield LeftOut("an agent that is not trained")
        else:
            for leaf in (index for index in range(len(nodes)) if index not in parents):
                log = _read(record, trace, leaf)
                log.failure = failure
                yield log


def _read(record: Any, trace: Any, leaf: int) -> LogConversation:
    """Return the path from the root to a leaf; what the policy did not sample is context."""
    log = LogConversation(id=f"{trace.get('id')}/{leaf}", tools=trace.get("tools"))
    task, marks = (
        as_mapping(trace.get("task") or record.get("task")),
        as_mapping(trace.get("rewards")),
    )
    log.task = as_text(task.get("key") or task.get("hash") or at(task, "data", "idx"))
    log.time, answer = at(trace, "timing", "start"), at(task, "data", "answer")
    log.hidden = {} if answer in (None, "") else {"reference": answer}
    log.rewards = {k: n for k, v in marks.items() if (n := as_number(at(v, "score"))) is not None}
    parts = [n * (as_number(at(marks[k], "weight")) or 0.0) for k, n in log.rewards.items()]
    log.rewards |= {"reward": sum(parts)} if parts else {}
    log.metadata = {"episode": record.get("id"), "agent": at(trace, "agent", "name")}
    log.metadata["stop_condition"] = trace.get("stop_condition")
    log.metadata["metrics"] = trace.get("metrics") or {}
    nodes, calls = trace["nodes"], {call.get("node"): call for call in trace.get("calls") or ()}
    path: list[Any] = [leaf]
    while (above := nodes[path[-1]].get("parent")) is not None and above not in path:
        path.append(above)
    for index in reversed(path):
        node, call = nodes[index], as_mapping(calls.get(index))
        own = {"model": call.get("model"), "finish": call.get("finish_reason")}
        own |= {"context": not node.get("sampled"), "usage": usage_of(call.get("usage"))}
        log.messages += read_message(node["message"], **own)
    return log
