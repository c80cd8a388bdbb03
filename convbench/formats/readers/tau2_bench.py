"""tau2-bench's results: {info, tasks, simulations}; or one simulation, by voice too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import as_mapping, as_number, as_text, as_time, read_message
from convbench.formats.log import Item, LogConversation, LogMessage, each

STOPS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
LIMITS = ("max_steps", "too_many_errors", "timeout")


def recognises(first: object) -> bool:
    """Results, or a simulation."""
    if not isinstance(first, dict):
        return False
    return "simulations" in first or ("termination_reason" in first and "task_id" in first)


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each simulation. The system prompt is the policy of the domain."""
    info = as_mapping(record.get("info"))
    tasks = {
        str(task.get("id")): task for task in record.get("tasks") or () if isinstance(task, dict)
    }
    simulations = record.get("simulations", [record])
    yield from each(simulations, lambda simulation: _read(simulation, info, tasks))


def _read(
    simulation: dict[str, Any], info: dict[str, Any], tasks: dict[str, Any]
) -> LogConversation:
    policy = as_text(as_mapping(info.get("environment_info")).get("policy"))
    log = LogConversation([LogMessage("system", policy)] if policy else [])
    model = as_text(as_mapping(info.get("agent_info")).get("llm")) or None
    for item in simulation.get("messages") or _from_ticks(simulation.get("ticks") or []):
        user = item.get("requestor", item.get("role")) == "user"
        if user and (item.get("role") == "tool" or item.get("tool_calls")):
            log.dropped[
                "calls and results of the user's own tools, which the policy does not see"
            ] += 1
            continue
        mark = item.get("id") if item.get("role") == "tool" else item.get("tool_call_id")
        keys = ("role", "content", "tool_calls", "reasoning", "error")
        fields = {key: item[key] for key in keys if item.get(key)} | {"tool_call_id": mark}
        log.messages += read_message(fields | {"role": item["role"]})
    for message in log.messages:
        message.model = model if message.role == "assistant" else None
        for stop in STOPS if message.role == "user" else ():
            message.text = message.text.replace(stop, "").strip()
    result = as_mapping(simulation.get("reward_info"))
    reward = as_number(result.get("reward"))
    task = tasks.get(str(simulation["task_id"]))
    log.task, log.trial = str(simulation["task_id"]), simulation.get("trial")
    log.rewards = {} if reward is None else {"reward": reward}
    log.hidden = {"task": task} if task else {}
    log.stop = "limit" if simulation.get("termination_reason") in LIMITS else "complete"
    log.time = as_time(simulation.get("start_time"))
    names = ("termination_reason", "seed", "agent_cost", "user_cost", "duration", "mode")
    log.metadata = {k: simulation[k] for k in names if simulation.get(k) is not None}
    log.metadata |= {"reward_info": result} if result else {}
    return log


def _from_ticks(ticks: list[Any]) -> list[dict[str, Any]]:
    """Return what was said in a conversation by voice; pieces of one speaker are one message."""
    said: list[dict[str, Any]] = []
    for tick in ticks:
        for chunk in (as_mapping(tick.get("user_chunk")), as_mapping(tick.get("agent_chunk"))):
            if said and said[-1]["role"] == chunk.get("role") and chunk.get("content"):
                said[-1]["content"] += chunk["content"]
            elif chunk.get("content"):
                said.append({"role": chunk["role"], "content": chunk["content"]})
    return said
