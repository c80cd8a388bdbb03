"""Trajectories in ATIF (Harbor), version 1, with sub-agents in them, or in files of their own."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from convbench.formats.dialects import read_message, result_message, usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, as_text, at, kept

REWARDS = ("verifier/reward.txt", "verifier/reward.json", "result.json")  # the last one counts


def recognises(first: object) -> bool:
    fields = first if isinstance(first, dict) else {}
    is_one = as_text(fields.get("schema_version")).startswith("ATIF-v1")
    return is_one or (bool(fields) and all(map(recognises, fields.values())))


def read(record: Any, where: str) -> Items:
    """Yield each trajectory, with the reward that Harbor writes beside it or a folder above."""
    folder, reward = Path(where.rpartition(":")[0] or where).parent, None
    for path in (trial / name for trial in (folder.parent, folder) for name in REWARDS):
        with suppress(OSError, ValueError):
            text = path.read_text()[: 1 << 20]
            marks = as_mapping(at(text, "verifier_result", "rewards")) or as_mapping(text)
            number = as_number(marks.get("reward", text))
            reward = reward if number is None else number
    for one in [record] if "steps" in record else record.values():
        yield from _read(one, reward)


def _read(record: Any, reward: float | None, parent: Any = None) -> Items:
    agent, extra = as_mapping(record.get("agent")), as_mapping(record.get("extra"))
    log = LogConversation(parent=parent, rewards={"reward": reward})
    log.tools, log.time = agent.get("tool_definitions"), record["steps"][0].get("timestamp")
    log.id = record.get("trajectory_id") or record.get("session_id")
    log.task, log.group, log.split = map(extra.get, ("example_id", "group", "split"))
    log.metadata = {"atif": {k: v for k, v in record.items() if k != "subagent_trajectories"}}
    log.metadata |= as_mapping(extra.get("metadata"))
    log.messages = [message for step in record["steps"] for message in _read_step(step, agent)]
    is_own = any(m.role == "assistant" and not m.context for m in log.messages)
    yield log if is_own else LeftOut("no word of the policy")
    for one in record.get("subagent_trajectories") or ():
        yield from _read(one, None, log.id)


def _read_step(step: dict[str, Any], agent: dict[str, Any]) -> list[LogMessage]:
    item = kept(step, "reasoning_content", "tool_calls")
    item |= {"role": step["source"], "content": step.get("message")}
    own = {"finish": at(step, "extra", "finish_reason"), "usage": usage_of(step.get("metrics"))}
    own["model"] = step.get("model_name") or agent.get("model_name")
    own["context"] = bool(step.get("is_copied_context")) or step.get("llm_call_count") == 0
    out = [m for m in read_message(item, **own) if m.text or m.reasoning or m.calls]
    for result in as_list(at(step, "observation", "results")):
        if result.get("content") is not None:
            out.append(result_message(result["content"], result.get("source_call_id")))
            out[-1].role = "tool" if step.get("tool_calls") else "user"
    return out
