"""Claude Code's sessions (~/.claude/projects/**.jsonl): a file is a session, and so is that of a
sub-agent; older versions have sub-agents' lines in the same file.

`datasets` reads them with the package teich: it stops at a line that is no object, joins what
`/clear` and compaction part, and takes the program's lines for somebody's words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import Any

from convbench.formats.log import LogConversation, LogMessage
from convbench.formats.readers.claude_agent_sdk import read_api_message
from convbench.formats.values import as_list, as_mapping, as_text, kept

whole_file = True
TYPES = ("user", "assistant", "system")
OTHERS = ("summary", "file-history-snapshot", "queue-operation", "progress")
SIGNS = {"sessionId", "uuid", "parentUuid", "leafUuid", "isSidechain", "messageId"}
UNSAID = (
    *("<command-", "<local-command", "<system-reminder>", "<bash-"),
    *("Caveat: The messages below", "[Request interrupted by user"),
)
"""How lines of the user begin that no person wrote."""


def recognises(first: object) -> bool:
    """A line of a session; other lines stand between and before them."""
    if not isinstance(first, dict) or "payload" in first:
        return False
    kind = first.get("type")
    return kind == "queue-operation" or (kind in (*TYPES, *OTHERS) and bool(SIGNS & first.keys()))


def read(lines: Any, where: str) -> Iterator[LogConversation]:
    """Yield the session's conversations: one after each `/clear` and each compaction of what was
    said, and each sub-agent's."""
    agents = _agents(lines)
    lines = [line for line in lines if line.get("type") in TYPES]
    logs: dict[tuple[str, int], LogConversation] = {}
    clears: Counter[str] = Counter()
    for line in _on_path([x for x in lines if isinstance(x.get("message"), dict | None)]):
        session, agent = line.get("sessionId"), agents[line.get("uuid")]
        if line.get("subtype") == "compact_boundary" or _said(line).startswith(
            "<command-name>/clear"
        ):
            clears[agent] += 1  # the model went on without what was said before, or from a summary
        part = clears[agent]
        log = logs.setdefault((agent, part), LogConversation(metadata={"agent": agent}))
        log.id = log.id or "/".join(str(x) for x in (session, agent, part) if x)
        log.parent = session if agent else None
        log.time = log.time or line.get("timestamp")
        log.metadata = kept(line, "cwd", "version", "gitBranch", "slug") | log.metadata
        log.add(partial(_read_line, log), line)
    for log in logs.values():
        log.metadata["agent"] = log.metadata["agent"] or PurePath(where).stem.removesuffix(".jsonl")
        if log.has_reply or len(logs) == 1:
            yield log


def _agents(lines: list[dict[str, Any]]) -> dict[Any, str]:
    """Return the sub-agent of each line by its id, empty for the session's own; older versions do
    not name it, but its first line has no parent in it."""
    agents: dict[Any, str] = {}
    for line in lines:
        mark = line.get("uuid")
        above = agents.get(line.get("parentUuid")) or f"side-{mark}"
        agents[mark] = line.get("agentId") or (above if line.get("isSidechain") else "")
    return agents


def _said(line: dict[str, Any]) -> str:
    content = as_mapping(line.get("message")).get("content")
    first = next(iter(content if isinstance(content, list) else [{"text": content}]), None)
    return as_text(as_mapping(first).get("text")).lstrip()


def _on_path(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines without repeats and without those that were taken back: where a person's
    line has an earlier sibling that is a person's too, the last one counts."""
    seen: dict[Any, dict[str, Any]] = {}
    for number, line in enumerate(lines):
        seen.setdefault(line.get("uuid") or number, line)
    once = list(seen.values())
    asked = [line for line in once if line.get("parentUuid") and _is_of_a_person(line)]
    last = {line["parentUuid"]: line for line in asked}
    dropped = {line.get("uuid") for line in asked if last[line["parentUuid"]] is not line}
    out = []
    for line in once:
        if line.get("uuid") in dropped or (line.get("parentUuid") or 0) in dropped:
            dropped.add(line.get("uuid"))
        else:
            out.append(line)
    return out


def _is_of_a_person(line: dict[str, Any]) -> bool:
    marks = ("isMeta", "isCompactSummary", "isSidechain")
    blocks = as_list(as_mapping(line.get("message")).get("content"))
    return line.get("type") == "user" and not (
        any(line.get(mark) for mark in marks)
        or any(as_mapping(block).get("type") == "tool_result" for block in blocks)
    )


def _read_line(log: LogConversation, line: dict[str, Any]) -> list[LogMessage]:
    """Return what was said in a line; lines of one reply of the API have one group."""
    message = line.get("message")
    if line["type"] == "system" or message is None:
        return []
    if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        log.dropped["errors of the program, logged as the assistant's words"] += 1
        return []
    messages = read_api_message({"role": line["type"], **message})
    said = [m for m in messages if m.role != "user" or not _is_unsaid(line, m)]
    log.dropped["lines of the program, logged as the user's"] += len(messages) - len(said)
    return said


def _is_unsaid(line: dict[str, Any], message: LogMessage) -> bool:
    return bool(line.get("isMeta")) or message.text.lstrip().startswith(UNSAID)
