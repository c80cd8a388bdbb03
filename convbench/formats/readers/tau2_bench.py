"""tau2-bench's results: {info, tasks, simulations}; or one simulation, by voice too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Item, LogConversation, LogMessage, each
from convbench.formats.values import as_list, as_mapping, as_text, kept

STOPS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
LIMITS = ("max_steps", "too_many_errors", "timeout")
FACTS = ("termination_reason", "seed", "agent_cost", "user_cost", "duration", "mode")
USERS_TOOLS = "calls and results of the user's own tools, which the policy does not see"


def recognises(first: object) -> bool:
    """Results, or a simulation."""
    row = first if isinstance(first, dict) else {}
    return "simulations" in row or {"termination_reason", "task_id"} <= row.keys()


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield each simulation. The system prompt is the policy of the domain."""
    info = as_mapping(record.get("info"))
    listed = [as_mapping(task) for task in as_list(record.get("tasks"))]
    tasks = {str(task.get("id")): task for task in listed}
    simulations = record.get("simulations", [record])
    yield from each(simulations, lambda simulation: _read(simulation, info, tasks))


def _read(
    simulation: dict[str, Any], info: dict[str, Any], tasks: dict[str, Any]
) -> LogConversation:
    policy = as_text(as_mapping(info.get("environment_info")).get("policy"))
    model = as_text(as_mapping(info.get("agent_info")).get("llm")) or None
    result = as_mapping(simulation.get("reward_info"))
    task = tasks.get(str(simulation["task_id"]))
    log = LogConversation(
        [LogMessage("system", policy)] if policy else [],
        task=simulation["task_id"],
        trial=simulation.get("trial"),
        rewards={"reward": result.get("reward")},
        hidden={"task": task} if task else {},
        stop="limit" if simulation.get("termination_reason") in LIMITS else "complete",
        time=simulation.get("start_time"),
        metadata=kept(simulation, *FACTS, "reward_info"),
    )
    for item in simulation.get("messages") or _from_ticks(simulation.get("ticks") or []):
        is_tool = item.get("role") == "tool"
        if item.get("requestor", item.get("role")) == "user" and (
            is_tool or item.get("tool_calls")
        ):
            log.dropped[USERS_TOOLS] += 1
            continue
        fields = kept(item, "content", "tool_calls", "reasoning", "error", "tool_call_id")
        fields |= {"role": item["role"]} | ({"tool_call_id": item.get("id")} if is_tool else {})
        for message in read_message(fields, model=model):
            for stop in STOPS if message.role == "user" else ():
                message.text = message.text.replace(stop, "").strip()
            log.messages.append(message)
    return log


def _from_ticks(ticks: list[Any]) -> list[dict[str, Any]]:
    """Return what was said in a conversation by voice; pieces of one speaker are one message."""
    said: list[dict[str, Any]] = []
    for tick in ticks:
        for chunk in (as_mapping(tick.get("user_chunk")), as_mapping(tick.get("agent_chunk"))):
            if said and said[-1]["role"] == chunk.get("role") and chunk.get("content"):
                said[-1]["content"] += chunk["content"]
            elif chunk.get("content"):
                said.append(kept(chunk, "role", "content"))
    return said
