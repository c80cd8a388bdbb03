"""Claude Code's sessions (~/.claude/projects/**.jsonl): a file is a session, and so is that of a
sub-agent; older versions have sub-agents' lines in the same file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import PurePath
from typing import Any

from convbench.formats.dialects import as_mapping, as_time, read_message
from convbench.formats.log import Item, LogConversation, LogMessage

whole_file = True
TYPES = ("user", "assistant", "system")
SIGNS = {"sessionId", "uuid", "parentUuid", "leafUuid", "isSidechain"}
UNSAID = (
    "<command-",
    "<local-command",
    "<system-reminder>",
    "Caveat: The messages below",
    "<bash-",
)
"""How lines of the user begin that no person wrote."""
INTERRUPTED = "[Request interrupted by user"


def recognises(first: object) -> bool:
    """A line of a session; other lines stand between and before them."""
    if not isinstance(first, dict) or "payload" in first:
        return False
    kinds = (*TYPES, "summary", "file-history-snapshot", "queue-operation", "progress")
    return first.get("type") in kinds and (
        bool(SIGNS & first.keys()) or "messageId" in first or first["type"] == "queue-operation"
    )


def read(lines: Any, where: str) -> Iterator[Item]:
    """Yield the session's conversations: one after each `/clear` and each compaction of what was
    said, and each sub-agent's."""
    lines = [x for x in lines if isinstance(x, dict) and x.get("type") in TYPES]
    lines = _on_path([line for line in lines if isinstance(line.get("message"), dict | None)])
    parts: dict[tuple[str, int], LogConversation] = {}
    clears: Counter[str] = Counter()
    for line in lines:
        agent = line.get("agentId") or ("side" if line.get("isSidechain") else "")
        content = as_mapping(line.get("message")).get("content")
        if isinstance(content, str) and content.startswith("<command-name>/clear"):
            clears[agent] += 1
        if line.get("subtype") == "compact_boundary":  # the model went on from a summary
            clears[agent] += 1
        log = parts.setdefault((agent, clears[agent]), LogConversation([]))
        log.id = log.id or "/".join(filter(None, [line.get("sessionId"), agent]))
        log.parent = line.get("sessionId") if agent else None
        log.time = log.time or as_time(line.get("timestamp"))
        for name in ("cwd", "version", "gitBranch", "slug"):
            if line.get(name):
                log.metadata.setdefault(name, line[name])
        log.add_line(partial(_read_line, log), line)
    for (agent, part), log in parts.items():
        log.id = f"{log.id}/{part}" if part else log.id
        log.metadata |= {"agent": agent or PurePath(where).stem.removesuffix(".jsonl")}
        if any(message.role == "assistant" for message in log.messages) or len(parts) == 1:
            yield log


def _on_path(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines without repeats and without those that were taken back: where a person's
    line has an earlier sibling that is a person's too, the last one counts."""
    seen: set[str] = set()
    once = []
    for line in lines:
        if line.get("uuid") not in seen:
            once.append(line)
            if line.get("uuid"):
                seen.add(line["uuid"])
    said = [x for x in once if x.get("type") == "user" and x.get("parentUuid") and not _results(x)]
    last = {line["parentUuid"]: line["uuid"] for line in said if line.get("uuid")}
    dropped = {
        x.get("uuid") for x in said if last.get(x["parentUuid"], x.get("uuid")) != x.get("uuid")
    }
    kept = []
    for line in once:
        if line.get("uuid") in dropped or (
            line.get("parentUuid") and line["parentUuid"] in dropped
        ):
            dropped.add(line.get("uuid"))
        else:
            kept.append(line)
    return kept


def _results(line: dict[str, Any]) -> bool:
    content = as_mapping(line.get("message")).get("content")
    odd = line.get("isMeta") or line.get("isCompactSummary") or line.get("isSidechain")
    blocks = content if isinstance(content, list) else []
    return bool(odd) or any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks
    )


def _read_line(log: LogConversation, line: dict[str, Any]) -> list[LogMessage]:
    """Return what was said in a line; lines of one reply of the API have one group."""
    message = line.get("message")
    if line["type"] == "system" or message is None:
        return []
    if line.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
        log.dropped["errors of the program, logged as the assistant's words"] += 1
        return []
    own = line["type"] == "assistant"
    parts = read_message(
        {"role": message.get("role", line["type"]), "content": message.get("content")}
    )
    usage = as_mapping(message.get("usage"))
    out = []
    for part in parts:
        if part.role == "assistant":
            part.group, part.model = message.get("id"), message.get("model")
            part.finish = message.get("stop_reason")
            part.usage = (usage.get("input_tokens"), usage.get("output_tokens"), None)
        unsaid = line.get("isMeta") or part.text.lstrip().startswith(UNSAID)
        if part.role == "user" and not own and (unsaid or part.text.startswith(INTERRUPTED)):
            log.dropped["lines of the program, logged as the user's"] += 1
            continue
        out.append(part)
    return out
