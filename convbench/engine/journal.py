"""The journal of a run's model calls, which makes resume exact to the call.

Attempts are written before they are sent, so that none is lost.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from bisect import bisect_left
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from convbench.engine.batch_record import FILE, Submitted, totals
from convbench.engine.budget import Booked, Estimate
from convbench.net.tidy import count, dollars
from convbench.schema import (
    Completion,
    ImagePart,
    Message,
    Noun,
    Reasoning,
    Sampling,
    TextPart,
    ToolCall,
    text_of,
    without_stable,
)
from convbench.store.jsonl import Appender, lines, parse
from convbench.store.keys import Hashes, Names
from convbench.store.token_probs import FILE as PROBS
from convbench.store.token_probs import ProbsFile

_START = b'{"key":"'
_LAST = "\U0010ffff"
"""Sorts after every character that a key may hold."""


def call_hash(ref: str, sampling: Sampling, messages: Sequence[Message]) -> str:
    """Return 16 hex digits that identify a call by its model, sampling and messages."""
    data = orjson.dumps(
        [ref, sampling.model_dump(), without_stable(messages)],
        default=plain,
        option=orjson.OPT_SORT_KEYS,
    )
    return hashlib.sha256(data).hexdigest()[:16]


class Journal:
    """Finished calls in a file of JSON lines (`calls.jsonl`), appended one by one.

    A reply survives a kill of this process once `append` has returned (it is in the system's cache;
    no fsync). Memory holds only the loaded calls, until they are forgotten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.attempts = Attempts(path.with_name("attempts.jsonl"))
        self.submitted = Submitted(path.with_name(FILE))
        self.probs = ProbsFile(path.with_name(PROBS))
        self._records = Appender(path)
        self._found: dict[tuple[str, str], bytes] = {}
        self._order: list[tuple[str, str]] = []

    def load(self, keys: Callable[[str], bool] = lambda _key: True) -> int:
        """Load the calls whose key `keys` accepts; return how many are in memory.

        Unreadable lines (the torn last one of a killed process) are skipped: their calls are made
        again.
        """
        for _, line in lines(self.path):
            key = _key(line)
            if key is None or not keys(key):
                continue
            record = _parse(line)
            if record is not None:
                self._found[key, record["hash"]] = line
        self._order = sorted(self._found)
        return len(self._found)

    def totals(self) -> tuple[int, float]:
        """Return (tokens, known dollars) of all calls, of attempts without a reply and of batches
        whose replies are outstanding, for a run-wide budget."""
        tokens, usd, hashes = 0, 0.0, Hashes()
        for _, line in lines(self.path):
            record = _parse(line) or {}
            booked = record.get("booked")
            booked = booked if isinstance(booked, dict) else _told(record)
            more_tokens, more_usd = amount(booked)
            tokens, usd = tokens + more_tokens, usd + more_usd
            if "attempt" in record:
                hashes.add(str(record["attempt"]))
        replied = Names(hashes)
        lost_tokens, lost_usd = self.attempts.totals(replied)
        sent_tokens, sent_usd = totals(self.submitted.read(), replied)
        return tokens + lost_tokens + sent_tokens, usd + lost_usd + sent_usd

    def replied(self, marks: Collection[str]) -> set[str]:
        """Return the names of attempts with a reply whose name begins with one of these marks."""
        names = (str(parse(line).get("attempt")) for _, line in lines(self.path) if marks)
        return {name for name in names if name.rpartition("-")[0] in marks}

    def get(self, key: str, hash: str) -> Completion | None:
        """Return the reply of a loaded call; None if there is none."""
        line = self._found.get((key, hash))
        record = _parse(line) if line is not None else None
        return completion_of(record) if record else None

    def begin_attempt(self, key: str, need: Estimate) -> str:
        """Write that a call is about to be sent; return the attempt's name.

        The file for its reply is opened first: a file that cannot be written must not cost a
        call."""
        self._records.open_file()
        return self.attempts.begin(key, need)

    def append(
        self,
        key: str,
        hash: str,
        completion: Completion,
        attempt: str | None = None,
        booked: Booked | None = None,
    ) -> None:
        """Write one finished call, with its attempt's name and, if the provider did not report its
        usage, its booking. Raises RunError if the disk is full.

        Log-probabilities of its tokens are written first, to a file of their own.
        """
        if completion.token_probs is not None:
            self.probs.append(key, text_of(completion.content), completion.token_probs)
        record = {"key": key, "hash": hash, **fields_of(completion)}
        if attempt is not None:
            record["attempt"] = attempt
        if booked is not None and booked.assumed:
            record["booked"] = {"tokens": booked.tokens, "usd": booked.usd}
        self._records.write(orjson.dumps(record, default=plain))

    def forget(self, prefix: str) -> None:
        """Remove all calls whose key starts with `prefix` from memory; they stay in the file."""
        low = bisect_left(self._order, (prefix, ""))
        high = bisect_left(self._order, (prefix + _LAST, ""))
        for entry in self._order[low:high]:
            del self._found[entry]
        del self._order[low:high]

    def __len__(self) -> int:
        return len(self._found)

    def close(self) -> None:
        """Close the files; a later append opens them again."""
        self._records.close()
        self.attempts.close()
        self.submitted.close()
        self.probs.close()


def _key(line: bytes) -> str | None:
    """Return the key of a line, if possible without parsing it; None if the line is invalid."""
    if line.startswith(_START):
        end = line.find(b'"', len(_START))
        raw = line[len(_START) : end]
        if end > 0 and b"\\" not in raw:
            return raw.decode("utf-8", "replace")
    record = _parse(line)
    return str(record["key"]) if record else None


def _parse(line: bytes) -> dict[str, Any] | None:
    record = parse(line)
    return record if all(name in record for name in ("key", "hash", "content")) else None


def _told(record: dict[str, Any]) -> dict[str, Any]:
    """Return the usage that the provider reported for a call, as a booking."""
    counts = (count(record.get(name)) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return {"tokens": sum(counts), "usd": record.get("cost_usd")}


def plain(value: object) -> object:
    """Return a noun's fields as a mapping (orjson's `default`). Raises TypeError."""
    if isinstance(value, Noun):
        return value.model_dump()
    raise TypeError(f"cannot write {type(value).__name__}")


def fields_of(completion: Completion) -> dict[str, Any]:
    """Return a reply as a record."""
    found: dict[str, Any] = {
        "content": completion.content,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cost_usd": completion.cost_usd,
        "model": completion.model,
    }
    if completion.reasoning is not None:
        found["reasoning"] = completion.reasoning
    if completion.left_out:
        found["left_out"] = completion.left_out
    if completion.tool_calls:
        found["tool_calls"] = completion.tool_calls
    if completion.raw is not None:
        found["raw"] = completion.raw
    return found


def completion_of(record: dict[str, Any]) -> Completion:
    """Return the reply that a record holds."""
    content = record["content"]
    if isinstance(content, list):
        content = tuple(_part(part) for part in content)
    return Completion(
        content=content,
        finish_reason=record.get("finish_reason", "other"),
        prompt_tokens=record.get("prompt_tokens"),
        completion_tokens=record.get("completion_tokens"),
        cost_usd=record.get("cost_usd"),
        model=record.get("model"),
        reasoning=_reasoning(record.get("reasoning")),
        left_out=tuple(map(str, record.get("left_out") or ())),
        tool_calls=tuple(map(ToolCall.model_validate, record.get("tool_calls") or ())),
        raw=record.get("raw"),
    )


def _reasoning(value: Any) -> Reasoning | None:
    return None if value is None else Reasoning.model_validate(value)


def _part(part: dict[str, Any]) -> TextPart | ImagePart:
    kind = TextPart if part.get("type") == "text" else ImagePart
    return kind.model_validate(part)


class Attempts:
    """A file of JSON lines (`attempts.jsonl`) next to the journal.

    An attempt's line holds its likely use, with a reply of full length; if it gives no reply, a
    second line holds its booking. The journal's line of a reply names its attempt. An attempt with
    neither was made by a process that was killed, and counts as billed.
    """

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)
        self._prefix = secrets.token_hex(4)
        self._number = 0

    def begin(self, key: str, need: Estimate) -> str:
        """Write that a call is about to be sent; return the attempt's name."""
        self._number += 1
        name = f"{self._prefix}-{self._number}"
        tokens = math.ceil(need.tokens)
        self._write({"attempt": name, "key": key, "tokens": tokens, "usd": need.usd})
        return name

    def end(self, name: str, booked: Booked | None, why: str) -> None:
        """Write the booking of an attempt without a reply; None means that nothing was billed."""
        booked = booked or Booked(0, 0.0)
        self._write({"attempt": name, "tokens": booked.tokens, "usd": booked.usd, "lost": why})

    def totals(self, replied: Container[str]) -> tuple[int, float]:
        """Return (tokens, known dollars) of attempts without a reply; memory holds one entry for
        each."""
        found: dict[str, tuple[int, float]] = {}
        for _, line in lines(self._records.path):
            record = parse(line)
            if "attempt" in record and (name := str(record["attempt"])) not in replied:
                found[name] = amount(record)
        return sum(tokens for tokens, _ in found.values()), sum(usd for _, usd in found.values())

    def close(self) -> None:
        """Close the file; a later attempt opens it again."""
        self._records.close()

    def _write(self, record: dict[str, Any]) -> None:
        self._records.write(orjson.dumps(record))


def amount(record: dict[str, Any]) -> tuple[int, float]:
    """Return the (tokens, known dollars) in a line; an invalid amount counts as 0, so that no
    foreign line can free a budget."""
    tokens, usd = count(record.get("tokens")), dollars(record.get("usd"))
    return tokens or 0, usd or 0.0


MOST = 500
"""Most calls of a conversation that are read, and most failed attempts of a call."""


@dataclass
class Exchange:
    """One call: its key, its newest record in the journal, and its failed attempts."""

    key: str
    reply: dict[str, Any] | None = None
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Attempts without a reply: `lost` says why, `tokens` and `usd` are their booking."""


def exchanges(journal: Path, key: str) -> list[Exchange]:
    """Return the calls of the conversation with this key, in the order of their first lines."""
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
    """Return the turn number in a call's key, else None: 3 for `q1#0@3`, `q1#0@3.1`, `q1#0@3~1`."""
    digits = ""
    for sign in key.rpartition("@")[2]:
        if not sign.isdecimal():
            break
        digits += sign
    return int(digits) if digits else None


def _about(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation's calls, whose keys are its key, `@` and a turn."""
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
