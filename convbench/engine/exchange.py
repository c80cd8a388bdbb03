"""What a run's journal says of the calls of one conversation: attempts that were lost, replies.

Read only when somebody asks to see them, in one pass over the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convbench.store.jsonl import lines, parse

MOST = 500
"""Calls of a conversation that are read, and attempts of a call."""


@dataclass
class Exchange:
    """One call: its key, its newest reply as the journal has it, and what was tried before."""

    key: str
    reply: dict[str, Any] | None = None
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Attempts without a reply: `lost` says why, `tokens` and `usd` what was booked."""


def exchanges(journal: Path, key: str) -> list[Exchange]:
    """Return the calls of the conversation of this key, in the order of their first line."""
    found: dict[str, Exchange] = {}
    names: dict[str, str] = {}
    for record in _about(journal.with_name("attempts.jsonl"), key):
        if "attempt" in record and "key" in record and len(names) < MOST * MOST:
            names[str(record["attempt"])] = str(record["key"])
    for record in _about(journal, key):
        if len(found) < MOST:
            one = found.setdefault(str(record["key"]), Exchange(str(record["key"])))
            one.reply = record
    if names:
        for record in _lost(journal.with_name("attempts.jsonl")):
            owner = names.get(str(record.get("attempt")))
            if owner is not None:
                one = found.setdefault(owner, Exchange(owner))
                one.lost.append(record)
                del one.lost[MOST:]
    return list(found.values())


def place(key: str) -> int | None:
    """Return the turn that a call was for: `q1#0@3`, `q1#0@3.1` and `q1#0@3~1` are of turn 3."""
    digits = ""
    for sign in key.rpartition("@")[2]:
        if not sign.isdecimal():
            break
        digits += sign
    return int(digits) if digits else None


def _about(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation's calls: their key is its key, `@` and a turn."""
    mark = key.encode("utf-8", "surrogatepass")
    plain = b'"' not in mark and b"\\" not in mark and mark.isascii()
    for _, line in lines(path):
        if not plain or mark in line:
            record = parse(line)
            said = record.get("key")
            if isinstance(said, str) and said.rpartition("@")[0] == key:
                yield record


def _lost(path: Path) -> Iterator[dict[str, Any]]:
    for _, line in lines(path):
        if b'"lost"' in line:
            yield parse(line)
