"""Trajectories in ATIF (Harbor), version 1: steps of system, user and agent, results in the agent's
step; sub-agents inside, or in files of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.formats.dialects import (
    arguments_text,
    as_mapping,
    as_number,
    as_role,
    as_text,
    as_time,
    read_content,
    result_message,
)
from convbench.formats.log import Call, Item, LeftOut, LogConversation, LogMessage

KEPT = ("agent", "final_metrics", "notes", "extra", "schema_version", "continued_trajectory_ref")


def recognises(first: object) -> bool:
    """A trajectory, or an object of several."""
    if not isinstance(first, dict):
        return False
    if str(first.get("schema_version", "")).startswith("ATIF-v1"):
        return True
    return bool(first) and all(recognises(value) for value in first.values())


def read(record: Any, where: str) -> Iterator[Item]:
    """Yield a trajectory and those of its sub-agents."""
    if "steps" not in record:
        for inner in record.values():
            yield from read(inner, where)
        return
    yield from _read(record, _reward_beside(where), None)


def _read(record: Any, rewards: dict[str, float], parent: str | None) -> Iterator[Item]:
    agent = as_mapping(record.get("agent"))
    messages: list[LogMessage] = []
    for step in record["steps"]:
        messages += _read_step(step, agent)
    name = record.get("trajectory_id") or record.get("session_id")
    if any(m.role == "assistant" and not m.context for m in messages):
        extra = as_mapping(record.get("extra"))
        yield LogConversation(
            messages,
            id=name,
            parent=parent,
            task=extra.get("example_id"),
            group=extra.get("group"),
            split=extra.get("split"),
            rewards=rewards,
            tools=agent.get("tool_definitions") or [],
            time=as_time(record["steps"][0].get("timestamp")) if record["steps"] else None,
            metadata=as_mapping(extra.get("metadata"))
            or {key: record[key] for key in KEPT if record.get(key) is not None},
        )
    else:
        yield LeftOut("no word of the policy")
    for inner in record.get("subagent_trajectories") or ():
        yield from _read(inner, {}, name)


def _read_step(step: dict[str, Any], agent: dict[str, Any]) -> list[LogMessage]:
    """Return the messages of a step. What was copied from another trajectory, or done without a
    model, is context; a result beside no call is a message of the user."""
    copied = bool(step.get("is_copied_context")) or step.get("llm_call_count") == 0
    content = read_content(step.get("message"))
    metrics = as_mapping(step.get("metrics"))
    calls = [
        Call(c["function_name"], arguments_text(c.get("arguments")), c.get("tool_call_id"))
        for c in step.get("tool_calls") or ()
    ]
    said = LogMessage(
        as_role(step["source"]),
        content.text,
        as_text(step.get("reasoning_content")) or content.reasoning,
        calls,
        pictures=content.pictures,
        context=copied,
    )
    if said.role == "assistant":
        said.model = step.get("model_name") or agent.get("model_name")
        cost = as_number(metrics.get("cost_usd"))
        said.usage = (metrics.get("prompt_tokens"), metrics.get("completion_tokens"), cost)
        said.finish = as_mapping(step.get("extra")).get("finish_reason")
        kept = ("timestamp", "metrics", "extra", "llm_call_count", "is_copied_context")
        said.extra = {key: step[key] for key in kept if step.get(key) not in (None, {}, [])}
    out = [said] if said.text or said.reasoning or calls else []
    for result in as_mapping(step.get("observation")).get("results") or ():
        if result.get("content") is None:
            continue
        message = result_message(result["content"], result.get("source_call_id"))
        message.role = "tool" if calls else "user"
        out.append(message)
    return out


def _reward_beside(where: str) -> dict[str, float]:
    """Return the reward of a trial, which Harbor writes beside its trajectory."""
    folder = Path(where.rpartition(":")[0] or where).parent
    for trial in (folder, folder.parent):
        for name in ("result.json", "verifier/reward.json", "verifier/reward.txt"):
            try:
                text = (trial / name).read_text()[: 1 << 20]
            except (OSError, UnicodeDecodeError):
                continue
            try:
                result = as_mapping(json.loads(text))
            except ValueError:
                continue
            verifier = as_mapping(result.get("verifier_result"))
            found = as_mapping(verifier.get("rewards")).get("reward", result.get("reward", text))
            number = as_number(found)
            if number is not None:
                return {"reward": number}
    return {}
