"""Episodes of verifiers since 0.4, whose traces are trees of messages; and older rows."""

from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Items, LeftOut, LogConversation
from convbench.formats.readers import rows
from convbench.formats.values import as_list, as_mapping, as_number, at, first_of, kept


def recognises(first: object) -> bool:
    names = as_mapping(first).keys()
    return {"traces", "env"} <= names or {"prompt", "completion", "reward", "task"} <= names


def read(record: Any, where: str) -> Items:
    """Yield each path from a root to a leaf; of it, what the policy did not sample is context."""
    if "traces" not in record:
        if not record["completion"]:
            raise LeftOut("the completion was not stored")
        about = {"example_id": record.get("id"), "tools": at(record, "info", "oai_tools")}
        scores = {name: value for name, value in record.items() if "reward" in name}
        yield from rows.read({**about, **record, "reward": scores}, where)
    for trace in record.get("traces", ()):
        errors = as_list(trace.get("errors")) or as_list(record.get("errors"))
        kind, nodes = at(errors, 0, "type"), as_list(trace.get("nodes"))
        leaves = set(range(len(nodes))) - {node.get("parent") for node in nodes}
        if not nodes:
            yield LeftOut(f"{kind or 'no error'}: the episode failed before a word")
        elif at(trace, "agent", "trainable") is False:
            yield LeftOut("an agent that is not trained")
        else:
            for log in (_read_path(record, trace, leaf) for leaf in sorted(leaves)):
                log.failure = f"{kind}: {at(errors, 0, 'message')}" if errors else None
                yield log


def _read_path(episode: Any, trace: Any, leaf: int) -> LogConversation:
    task = as_mapping(trace.get("task") or episode.get("task"))
    log = LogConversation(id=f"{trace.get('id')}/{leaf}", tools=trace.get("tools"))
    log.task, log.time = first_of(task, "key", "hash"), at(trace, "timing", "start")
    log.hidden = kept({"reference": at(task, "data", "answer")}, "reference")
    marks = as_mapping(trace.get("rewards"))
    log.rewards = {k: n for k, v in marks.items() if (n := as_number(at(v, "score"))) is not None}
    parts = [n * (as_number(at(marks[k], "weight")) or 0.0) for k, n in log.rewards.items()]
    log.rewards |= {"reward": sum(parts)} if parts else {}
    log.metadata = {"episode": episode.get("id"), "agent": at(trace, "agent", "name")}
    log.metadata |= kept(trace, "stop_condition", "metrics")
    nodes, calls = trace["nodes"], {call.get("node"): call for call in trace.get("calls") or ()}
    path: list[Any] = [leaf]
    while (above := nodes[path[-1]].get("parent")) is not None and above not in path:
        path.append(above)
    for node, call in ((nodes[index], as_mapping(calls.get(index))) for index in reversed(path)):
        own = {"model": call.get("model"), "finish": call.get("finish_reason")}
        own |= {"context": not node.get("sampled"), "usage": usage_of(call.get("usage"))}
        log.messages += read_message(node["message"], **own)
    return log
