"""Trajectories in ATIF (Harbor), version 1: steps of system, user and agent, results in the agent's
step; sub-agents inside, or in files of their own. `datasets` reads Harbor's tasks, not these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.formats.dialects import (
    arguments_text,
    as_role,
    read_content,
    result_message,
    usage_of,
)
from convbench.formats.log import Call, Item, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, as_text, kept

ABOUT = (
    *("agent", "final_metrics", "notes", "extra", "schema_version", "session_id"),
    *("trajectory_id", "continued_trajectory_ref"),
)
STEP = ("timestamp", "model_name", "metrics", "extra", "llm_call_count", "is_copied_context")


def recognises(first: object) -> bool:
    """A trajectory, or an object of several."""
    if not isinstance(first, dict):
        return False
    if str(first.get("schema_version", "")).startswith("ATIF-v1"):
        return True
    return bool(first) and all(recognises(value) for value in first.values())


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield a trajectory and those of its sub-agents."""
    for one in [record] if "steps" in record else record.values():
        yield from _read(one, _reward_beside(where) if one is record else {}, None)


def _read(record: Any, rewards: dict[str, float], parent: str | None) -> Iterator[Item]:
    agent, extra = as_mapping(record.get("agent")), as_mapping(record.get("extra"))
    steps, name = record["steps"], record.get("trajectory_id") or record.get("session_id")
    messages = [message for step in steps for message in _read_step(step, agent)]
    if any(m.role == "assistant" and not m.context for m in messages):
        yield LogConversation(
            messages,
            id=name,
            parent=parent,
            task=extra.get("example_id"),
            group=extra.get("group"),
            split=extra.get("split"),
            rewards=rewards,
            tools=agent.get("tool_definitions"),
            time=steps[0].get("timestamp"),
            metadata=kept(record, *ABOUT)
            | {"steps": [kept(step, *STEP) | _odd(step) for step in steps]}
            | as_mapping(extra.get("metadata")),
        )
    else:
        yield LeftOut("no word of the policy")
    for inner in record.get("subagent_trajectories") or ():
        yield from _read(inner, {}, name)


def _odd(step: dict[str, Any]) -> dict[str, Any]:
    """Return what a step says in parts, or about a sub-agent, of which a turn holds the text."""
    results = as_list(as_mapping(step.get("observation")).get("results"))
    has_parts = any("subagent_trajectory_ref" in r or isinstance(r.get("content"), list)
                    for r in map(as_mapping, results))  # fmt: skip
    is_parts = isinstance(step.get("message"), list)
    return kept(step, *["message"] * is_parts, *["observation"] * has_parts)


def _read_step(step: dict[str, Any], agent: dict[str, Any]) -> list[LogMessage]:
    """Return the messages of a step. What was copied from another trajectory, or done without a
    model, is context; a result beside no call is a message of the user."""
    said = read_content(step.get("message"), as_role(step["source"]))[0]
    said.context = bool(step.get("is_copied_context")) or step.get("llm_call_count") == 0
    said.reasoning = as_text(step.get("reasoning_content")) or said.reasoning
    said.calls = [
        Call(call["function_name"], arguments_text(call.get("arguments")), call.get("tool_call_id"))
        for call in as_list(step.get("tool_calls"))
    ]
    if said.role == "assistant":
        said.usage = usage_of(step.get("metrics"))
        said.model = step.get("model_name") or agent.get("model_name")
        said.finish = as_mapping(step.get("extra")).get("finish_reason")
    out = [said] if said.text or said.reasoning or said.calls else []
    for result in as_list(as_mapping(step.get("observation")).get("results")):
        if result.get("content") is not None:
            message = result_message(result["content"], result.get("source_call_id"))
            message.role = "tool" if said.calls else "user"
            out.append(message)
    return out


def _reward_beside(where: str) -> dict[str, float]:
    """Return the reward of a trial, which Harbor writes beside its trajectory."""
    folder = Path(where.rpartition(":")[0] or where).parent
    names = ("result.json", "verifier/reward.json", "verifier/reward.txt")
    for path in (trial / name for trial in (folder, folder.parent) for name in names):
        try:
            text = path.read_text()[: 1 << 20]
            result = as_mapping(json.loads(text))
        except (OSError, ValueError):
            continue
        rewards = as_mapping(as_mapping(result.get("verifier_result")).get("rewards"))
        number = as_number(rewards.get("reward", result.get("reward", text)))
        if number is not None:
            return {"reward": number}
    return {}
