"""tau-bench's trajectories; tau2-bench's {info, tasks, simulations}, or one, by voice too."""

import re
from functools import partial
from itertools import groupby
from typing import Any

from convbench.formats.dialects import read_message
from convbench.formats.log import Items, LogConversation, LogMessage, each
from convbench.formats.values import as_list, as_mapping, as_text, at, kept

STOP = re.compile(r"###(?:STOP|TRANSFER|OUT-OF-SCOPE)###")  # the simulated user ends; no word
LIMITS = ("max_steps", "too_many_errors", "timeout")
FACTS = ("termination_reason", "seed", "agent_cost", "user_cost", "duration", "mode", "reward_info")
MESSAGE = ("role", "content", "tool_calls", "reasoning", "error", "tool_call_id")
USERS_TOOLS = "calls and results of the user's own tools, which the policy does not see"


def recognises(first: object) -> bool:
    signs = ({"simulations"}, {"task_id", "traj"}, {"task_id", "termination_reason"})
    return any(sign <= as_mapping(first).keys() for sign in signs)


def read(record: Any, where: str) -> Items:
    """Yield the trajectory of a row, or each simulation of the results."""
    tasks = {str(at(task, "id")): task for task in as_list(record.get("tasks"))}
    simulations = record.get("simulations", [record])
    yield from each(simulations, partial(_read, as_mapping(record.get("info")), tasks))


def _read(info: dict[str, Any], tasks: dict[str, Any], row: dict[str, Any]) -> Items:
    log = LogConversation(task=row["task_id"], trial=row.get("trial"), time=row.get("start_time"))
    log.rewards = {"reward": row.get("reward", at(row, "reward_info", "reward"))}
    log.hidden = kept({"task": tasks.get(str(log.task)) or info.get("task")}, "task")
    is_unchecked = info.get("reward_info", info) is None
    log.stop = "limit" if is_unchecked or row.get("termination_reason") in LIMITS else "complete"
    log.metadata = kept(row, *FACTS) | kept(info, "user_cost")
    if policy := at(info, "environment_info", "policy"):  # of tau2-bench, the system prompt
        log.messages.append(LogMessage("system", policy))
    for item in row.get("traj") or row.get("messages") or _from_ticks(row.get("ticks", [])):
        is_user = item.get("role") == "user"
        if item.get("requestor") == "user" or (is_user and item.get("tool_calls")):
            log.dropped[USERS_TOOLS] += 1
            continue
        fields = kept({"tool_call_id": item.get("id"), **item}, *MESSAGE)
        if is_user:
            fields["content"] = STOP.sub("", as_text(item.get("content"))).strip()
        log.messages += read_message(fields, model=at(info, "agent_info", "llm"))
    yield log


def _from_ticks(ticks: list[Any]) -> list[dict[str, Any]]:
    chunks = (at(tick, name) for tick in ticks for name in ("user_chunk", "agent_chunk"))
    spoken = groupby((c for c in chunks if at(c, "content")), key=lambda chunk: chunk["role"])
    return [{"role": who, "content": "".join(c["content"] for c in some)} for who, some in spoken]
