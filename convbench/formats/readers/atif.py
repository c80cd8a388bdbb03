"""Trajectories in ATIF (Harbor), version 1: steps of system, user and agent, results in the agent's
step; sub-agents inside, or in files of their own. `datasets` reads Harbor's tasks, not these."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from convbench.formats.dialects import read_message, result_message, usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, as_text, at, kept

REWARDS = ("result.json", "verifier/reward.json", "verifier/reward.txt")
"""Files of a trial's reward beside its trajectory, or a folder above."""


def recognises(first: object) -> bool:
    """A trajectory, or an object of several."""
    if not isinstance(first, dict) or not first:
        return False
    is_one = as_text(first.get("schema_version")).startswith("ATIF-v1")
    return is_one or all(map(recognises, first.values()))


def read(record: Any, where: str) -> Items:
    """Yield a trajectory, with the reward that Harbor writes beside it, and its sub-agents'."""
    folder = Path(where.rpartition(":")[0] or where).parent
    rewards: dict[str, float] = {}
    for path in (trial / name for trial in (folder.parent, folder) for name in reversed(REWARDS)):
        with suppress(OSError, ValueError):
            text = path.read_text()[: 1 << 20]
            marks = as_mapping(at(text, "verifier_result", "rewards")) or as_mapping(text)
            number = as_number(marks.get("reward", text))
            rewards = rewards if number is None else {"reward": number}
    is_one = "steps" in record
    for one in [record] if is_one else record.values():
        yield from _read(one, rewards if is_one else {}, None)


def _read(record: Any, rewards: dict[str, float], parent: Any) -> Items:
    agent, extra = as_mapping(record.get("agent")), as_mapping(record.get("extra"))
    log = LogConversation(parent=parent, rewards=rewards, tools=agent.get("tool_definitions"))
    log.id = record.get("trajectory_id") or record.get("session_id")
    log.task, log.group, log.split = map(extra.get, ("example_id", "group", "split"))
    log.time = record["steps"][0].get("timestamp")
    log.metadata = {"atif": {k: v for k, v in record.items() if k != "subagent_trajectories"}}
    log.metadata |= as_mapping(extra.get("metadata"))
    log.messages = [message for step in record["steps"] for message in _read_step(step, agent)]
    is_own = any(m.role == "assistant" and not m.context for m in log.messages)
    yield log if is_own else LeftOut("no word of the policy")
    for one in record.get("subagent_trajectories") or ():
        yield from _read(one, {}, log.id)


def _read_step(step: dict[str, Any], agent: dict[str, Any]) -> list[LogMessage]:
    """Return the messages of a step. What was copied from another trajectory, or done without a
    model, is context; a result beside no call is a message of the user."""
    finish, model = at(step, "extra", "finish_reason"), step.get("model_name")
    item = kept(step, "reasoning_content", "tool_calls")
    item |= {"role": step["source"], "content": step.get("message"), "finish_reason": finish}
    is_shown = bool(step.get("is_copied_context")) or step.get("llm_call_count") == 0
    own = {"usage": usage_of(step.get("metrics")), "model": model or agent.get("model_name")}
    made = read_message(item, context=is_shown, **own)
    out = [m for m in made if m.text or m.reasoning or m.calls]
    for result in as_list(at(step, "observation", "results")):
        if result.get("content") is not None:
            out.append(result_message(result["content"], result.get("source_call_id")))
            out[-1].role = "tool" if step.get("tool_calls") else "user"
    return out
