"""Claude Code's sessions (~/.claude/projects/**.jsonl), and the stream of Claude's Agent SDK."""

import re
from collections import Counter
from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_text, at, kept

whole_file = True
TYPES = ("user", "assistant", "system", "result")
FACTS = ("cwd", "version", "gitBranch", "slug", "model", "agent", "is_error", "total_cost_usd")
UNSAID = re.compile(r"\s*(<(local-)?command-|<bash-|<system-rem|Caveat: The mess|\[Request inter)")


def recognises(first: object) -> bool:
    line = as_mapping(first)
    return line.get("type") in TYPES and bool({"uuid", "session_id"} & line.keys())


def read(lines: Any, where: str) -> Items:
    """Yield the session's parts, a new one after each `/clear` and compaction, and sub-agents'."""
    logs: dict[tuple[str, int], LogConversation] = {}
    agents: dict[Any, str] = {}
    parts: Counter[str] = Counter()
    taken_back: set[Any] = set()  # lines that a later one of a person replaced, and below
    last = {line.get("parentUuid"): line.get("uuid") for line in lines if _is_of_a_person(line)}
    for line in lines:
        mark, above = line.get("uuid"), line.get("parentUuid")
        is_older = _is_of_a_person(line) and last[above] != mark
        if above and (is_older or above in taken_back):
            taken_back.add(mark)
        is_read = line.get("type") in TYPES and isinstance(line.get("message"), dict | None)
        if mark in taken_back or (mark and mark in agents) or not is_read:
            continue
        session = line.get("sessionId") or line.get("session_id")
        agent = line.get("agentId") or line.get("parent_tool_use_id") or ""
        if line.get("isSidechain"):  # of an agent without a name its first line has no parent
            agent = agent or agents.get(above) or f"side-{mark}"
        agents[mark] = agent
        is_cleared = "<command-name>/clear" in as_text(at(line, "message", "content"))[:80]
        parts[agent] += is_cleared or line.get("subtype") == "compact_boundary"
        log = logs.setdefault((agent, parts[agent]), LogConversation(time=line.get("timestamp")))
        log.id = log.id or "/".join(str(x) for x in (session, agent, parts[agent]) if x)
        log.parent = session if agent else None
        log.stop = "limit" if line.get("subtype") == "error_max_turns" else "complete"
        log.metadata = kept({**line, "agent": agent}, *FACTS) | log.metadata
        log.add(_read, line)
    yield from (log for log in logs.values() if log.has_reply or len(logs) == 1)


def _is_of_a_person(line: dict[str, Any]) -> bool:
    kinds = [at(block, "type") for block in as_list(at(line, "message", "content"))]
    return line.get("type") == "user" and not line.get("isMeta") and "tool_result" not in kinds


def _read(line: dict[str, Any]) -> list[LogMessage]:
    message = line.get("message") or {}
    is_error = line.get("isApiErrorMessage") or message.get("model") == "<synthetic>"
    if is_error or line.get("isMeta") or not message:  # what the program wrote
        return []
    item = {"role": line["type"], **kept(message, "role", "content", "model", "stop_reason")}
    made = read_message(item, group=message.get("id"), usage=usage_of(message.get("usage")))
    return [m for m in made if m.role != "user" or not UNSAID.match(m.text)]
