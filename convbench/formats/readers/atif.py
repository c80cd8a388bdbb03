"""Trajectories in ATIF (Harbor), version 1: steps of system, user and agent, results in the agent's
step; sub-agents inside, or in files of their own. `datasets` reads Harbor's tasks, not these."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from convbench.formats.dialects import as_call, as_role, read_content, result_message, usage_of
from convbench.formats.log import Items, LeftOut, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_number, as_text, at, kept

ABOUT = (
    *("agent", "final_metrics", "notes", "extra", "schema_version", "session_id"),
    *("trajectory_id", "continued_trajectory_ref"),
)
STEP = ("timestamp", "model_name", "metrics", "extra", "llm_call_count", "is_copied_context")
REWARDS = ("result.json", "verifier/reward.json", "verifier/reward.txt")
"""Files of a trial's reward beside its trajectory, or a folder above."""


def recognises(first: object) -> bool:
    """A trajectory, or an object of several."""
    if isinstance(first, dict) and as_text(first.get("schema_version")).startswith("ATIF-v1"):
        return True
    return isinstance(first, dict) and bool(first) and all(map(recognises, first.values()))


def read(record: Any, where: str) -> Items:
    """Yield a trajectory, with the reward that Harbor writes beside it, and its sub-agents'."""
    if "steps" not in record:
        for one in record.values():
            yield from _read(one, {}, None)
        return
    folder = Path(where.rpartition(":")[0] or where).parent
    rewards: dict[str, float] = {}
    for path in (trial / name for trial in (folder.parent, folder) for name in reversed(REWARDS)):
        with suppress(OSError, ValueError):
            text = path.read_text()[: 1 << 20]
            marks = as_mapping(at(text, "verifier_result", "rewards")) or as_mapping(text)
            number = as_number(marks.get("reward", text))
            rewards = rewards if number is None else {"reward": number}
    yield from _read(record, rewards, None)


def _read(record: Any, rewards: dict[str, float], parent: Any) -> Items:
    agent, extra = as_mapping(record.get("agent")), as_mapping(record.get("extra"))
    name = record.get("trajectory_id") or record.get("session_id")
    log = LogConversation(id=name, parent=parent, rewards=rewards)
    log.task, log.group, log.split = map(extra.get, ("example_id", "group", "split"))
    log.tools, log.time = agent.get("tool_definitions"), record["steps"][0].get("timestamp")
    steps = []
    for step in record["steps"]:
        log.messages += _read_step(step, agent)
        results = as_list(at(step, "observation", "results"))
        keys = ["message"] if isinstance(step.get("message"), list) else []
        if any(
            "subagent_trajectory_ref" in r or isinstance(r.get("content"), list) for r in results
        ):
            keys.append("observation")  # of which a turn has only the text
        steps.append(kept(step, *STEP, *keys))
    log.metadata = kept(record, *ABOUT) | {"steps": steps} | as_mapping(extra.get("metadata"))
    is_own = any(m.role == "assistant" and not m.context for m in log.messages)
    yield log if is_own else LeftOut("no word of the policy")
    for inner in record.get("subagent_trajectories") or ():
        yield from _read(inner, {}, name)


def _read_step(step: dict[str, Any], agent: dict[str, Any]) -> list[LogMessage]:
    """Return the messages of a step. What was copied from another trajectory, or done without a
    model, is context; a result beside no call is a message of the user."""
    said = read_content(step.get("message"), as_role(step["source"]))[0]
    said.context = bool(step.get("is_copied_context")) or step.get("llm_call_count") == 0
    said.reasoning = as_text(step.get("reasoning_content")) or said.reasoning
    said.calls = [as_call(call) for call in as_list(step.get("tool_calls"))]
    if said.role == "assistant":
        said.usage = usage_of(step.get("metrics"))
        said.model = step.get("model_name") or agent.get("model_name")
        said.finish = at(step, "extra", "finish_reason")
    out = [said] if said.text or said.reasoning or said.calls else []
    for result in as_list(at(step, "observation", "results")):
        if result.get("content") is not None:
            out.append(result_message(result["content"], result.get("source_call_id")))
            out[-1].role = "tool" if said.calls else "user"
    return out
