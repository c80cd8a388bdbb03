"""Claude Code's sessions (~/.claude/projects/**.jsonl), a file each, and so are their sub-agents in
newer versions; and the message stream of Claude's Agent SDK, whose names are in snake_case.

`datasets` reads sessions with the package teich: it stops at a line that is no object, joins what
`/clear` and compaction part, and takes the program's lines for somebody's words.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from convbench.formats.dialects import read_message, usage_of
from convbench.formats.log import Items, LogConversation, LogMessage
from convbench.formats.values import as_list, as_mapping, as_text, at, kept

whole_file = True
TYPES = ("user", "assistant", "system", "result")
OTHERS = ("summary", "file-history-snapshot", "queue-operation", "progress")
SIGNS = {"sessionId", "session_id", "uuid", "parentUuid", "leafUuid", "isSidechain", "messageId"}
FACTS = ("cwd", "version", "gitBranch", "slug", "model")
RESULT = ("subtype", "is_error", "num_turns", "total_cost_usd", "duration_ms")
UNSAID = (  # how lines of the user begin that no person wrote
    *("<command-", "<local-command", "<system-reminder>", "<bash-"),
    *("Caveat: The messages below", "[Request interrupted by user"),
)


def recognises(first: object) -> bool:
    line = as_mapping(first)
    is_line = line.get("type") in (*TYPES, *OTHERS) and bool(SIGNS & line.keys())
    return (is_line or line.get("type") == "queue-operation") and "payload" not in line


def read(lines: Any, where: str) -> Items:
    """Yield the session's conversations: one after each `/clear` and each compaction of what was
    said, where the model went on without it, and each sub-agent's."""
    logs: dict[tuple[str, int], LogConversation] = {}
    agents: dict[Any, str] = {}
    parts: Counter[str] = Counter()
    facts: dict[str, Any] = {}
    result: dict[str, Any] = {}
    for line in _on_path(lines):
        mark, session = line.get("uuid"), line.get("sessionId") or line.get("session_id")
        agent = line.get("agentId") or line.get("parent_tool_use_id") or ""
        if line.get("isSidechain"):  # of an agent without a name its first line has no parent
            agent = agent or agents.get(line.get("parentUuid")) or f"side-{mark}"
        agents[mark] = agent
        if line.get("type") not in TYPES:
            continue
        content = at(line, "message", "content")
        text = as_text(at(content, 0, "text") if isinstance(content, list) else content).lstrip()
        is_new = text.startswith("<command-name>/clear")
        parts[agent] += is_new or line.get("subtype") == "compact_boundary"
        log = logs.setdefault((agent, parts[agent]), LogConversation(time=line.get("timestamp")))
        log.id = log.id or "/".join(str(x) for x in (session, agent, parts[agent]) if x)
        log.parent = session if agent else None
        facts = kept(line, *FACTS) | facts
        result |= kept(line, *RESULT) if line["type"] == "result" else {}
        log.add(_read, line)
    for (agent, _), log in logs.items():
        name = agent or PurePath(where).stem.removesuffix(".jsonl")
        log.metadata = facts | {"agent": name} | ({} if agent else result)
        log.stop = "limit" if result.get("subtype") == "error_max_turns" else "complete"
        if log.has_reply or len(logs) == 1:
            yield log


def _on_path(lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the lines without repeats and without those that were taken back: where a person's
    line has an earlier sibling that is a person's too, the last one counts."""
    seen: dict[Any, dict[str, Any]] = {}
    for number, line in enumerate(lines):
        if isinstance(line.get("message"), dict | None):
            seen.setdefault(line.get("uuid") or number, line)
    last = {line.get("parentUuid"): line for line in seen.values() if _is_of_a_person(line)}
    dropped: set[Any] = set()
    for line in seen.values():
        above = line.get("parentUuid")
        is_older = above and _is_of_a_person(line) and last[above] is not line
        if is_older or (above and above in dropped):
            dropped.add(line.get("uuid"))
        else:
            yield line


def _is_of_a_person(line: dict[str, Any]) -> bool:
    marks = [line.get(mark) for mark in ("isMeta", "isCompactSummary", "isSidechain")]
    kinds = [at(block, "type") for block in as_list(at(line, "message", "content"))]
    return line.get("type") == "user" and not (any(marks) or "tool_result" in kinds)


def _read(line: dict[str, Any]) -> list[LogMessage]:
    """Return what was said in a line; lines of one reply of the API have one group. Errors of the
    program that are logged as the assistant's words are not."""
    message = line.get("message") or {}
    is_error = line.get("isApiErrorMessage") or message.get("model") == "<synthetic>"
    if line["type"] not in ("user", "assistant") or not message or is_error:
        return []
    messages = read_message(
        {"role": message.get("role", line["type"]), "content": message.get("content")},
        group=message.get("id"),
        model=message.get("model"),
        finish=message.get("stop_reason"),
        usage=usage_of(message.get("usage")),
    )
    unsaid = ("",) if line.get("isMeta") else UNSAID
    return [m for m in messages if m.role != "user" or not m.text.lstrip().startswith(unsaid)]
