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

from convbench.engine.batch_record import FILE, BatchLog, unreplied_cost
from convbench.engine.budget import Booking, Estimate
from convbench.net.untrusted_json import safe_count, safe_dollars
from convbench.schema import (
    Completion,
    FrozenModel,
    ImagePart,
    Message,
    Reasoning,
    Sampling,
    TextPart,
    ToolCall,
    without_stable,
)
from convbench.store.jsonl import Appender, numbered_lines, parse_line
from convbench.store.keys import Hashes, NameSet

_START = b'{"key":"'
_LAST = "\U0010ffff"
"""Sorts after every character that a key may hold."""


def call_hash(ref: str, sampling: Sampling, messages: Sequence[Message]) -> str:
    """Return 16 hex digits that identify a call by its model reference, sampling settings and
    messages.

    The marks of stable prefixes in the messages are left out.
    """
    data = orjson.dumps(
        [ref, sampling.model_dump(), without_stable(messages)],
        default=dump_noun,
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
        self.attempts = AttemptLog(path.with_name("attempts.jsonl"))
        self.submitted = BatchLog(path.with_name(FILE))
        self._records = Appender(path)
        self._loaded: dict[tuple[str, str], bytes] = {}
        self._order: list[tuple[str, str]] = []

    def load_calls(self, keys: Callable[[str], bool] = lambda _key: True) -> int:
        """Load the calls whose key `keys` accepts into memory; return how many are in memory then.

        Invalid lines, such as the torn last one of a killed process, are skipped: their calls are
        made again. Without a file there are none.
        """
        for _, line in numbered_lines(self.path):
            key = _line_key(line)
            if key is None or not keys(key):
                continue
            record = _parse_call(line)
            if record is not None:
                self._loaded[key, record["hash"]] = line
        self._order = sorted(self._loaded)
        return len(self._loaded)

    def total_cost(self) -> tuple[int, float]:
        """Return (tokens, known dollars) of all calls in the file, of attempts without reply and of
        batches.

        Batches count by what they lost and by the worst case of replies that are outstanding.
        Everything is read from the files, whatever is loaded; without files it is (0, 0.0).
        """
        tokens, usd, hashes = 0, 0.0, Hashes()
        for _, line in numbered_lines(self.path):
            record = _parse_call(line) or {}
            booked = record.get("booked")
            booked = booked if isinstance(booked, dict) else _usage_booking(record)
            more_tokens, more_usd = amount_of(booked)
            tokens, usd = tokens + more_tokens, usd + more_usd
            if "attempt" in record:
                hashes.add(str(record["attempt"]))
        replied = NameSet(hashes)
        lost_tokens, lost_usd = self.attempts.total_cost(replied)
        sent_tokens, sent_usd = unreplied_cost(self.submitted.read_batches(), replied)
        return tokens + lost_tokens + sent_tokens, usd + lost_usd + sent_usd

    def attempts_with_reply(self, marks: Collection[str]) -> set[str]:
        """Return the names of attempts in the file whose name before its last `-` is one of these
        marks."""
        names = (
            str(parse_line(line).get("attempt")) for _, line in numbered_lines(self.path) if marks
        )
        return {name for name in names if name.rpartition("-")[0] in marks}

    def get(self, key: str, hash: str) -> Completion | None:
        """Return the reply of a call that `load_calls` loaded, without log-probabilities; None if
        there is none.

        Calls appended since then are not found.
        """
        line = self._loaded.get((key, hash))
        record = _parse_call(line) if line is not None else None
        return completion_of(record) if record else None

    def begin_attempt(self, key: str, need: Estimate) -> str:
        """Write that a call is about to be sent; return the attempt's new name.

        The file for its reply is opened first: a file that cannot be written must not cost a call.
        Raise RunError if one cannot be written.
        """
        self._records.open_file()
        return self.attempts.begin_attempt(key, need)

    def append(
        self,
        key: str,
        hash: str,
        completion: Completion,
        attempt: str | None = None,
        booked: Booking | None = None,
    ) -> None:
        """Write one finished call, with its attempt's name and, if it was assumed, its booking.

        The call is not loaded. Raise RunError if it cannot be written.
        """
        record = {"key": key, "hash": hash, **fields_of(completion)}
        if attempt is not None:
            record["attempt"] = attempt
        if booked is not None and booked.assumed:
            record["booked"] = {"tokens": booked.tokens, "usd": booked.usd}
        self._records.write(orjson.dumps(record, default=dump_noun))

    def forget_calls(self, prefix: str) -> None:
        """Remove all loaded calls whose key starts with `prefix` from memory; they stay in the
        file."""
        low = bisect_left(self._order, (prefix, ""))
        high = bisect_left(self._order, (prefix + _LAST, ""))
        for entry in self._order[low:high]:
            del self._loaded[entry]
        del self._order[low:high]

    def __len__(self) -> int:
        return len(self._loaded)

    def close(self) -> None:
        """Close the files; a later append opens them again."""
        self._records.close()
        self.attempts.close()
        self.submitted.close()


def _line_key(line: bytes) -> str | None:
    """Return the key of a line, if possible without parsing it; None if the line is invalid."""
    if line.startswith(_START):
        end = line.find(b'"', len(_START))
        raw = line[len(_START) : end]
        if end > 0 and b"\\" not in raw:
            return raw.decode("utf-8", "replace")
    record = _parse_call(line)
    return str(record["key"]) if record else None


def _parse_call(line: bytes) -> dict[str, Any] | None:
    record = parse_line(line)
    return record if all(name in record for name in ("key", "hash", "content")) else None


def _usage_booking(record: dict[str, Any]) -> dict[str, Any]:
    """Return the usage that the provider reported for a call, as a booking."""
    counts = (safe_count(record.get(name)) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return {"tokens": sum(counts), "usd": record.get("cost_usd")}


def dump_noun(value: object) -> object:
    """Return a pydantic model's fields as a dict, for orjson's `default`.

    Raise TypeError for anything else.
    """
    if isinstance(value, FrozenModel):
        return value.model_dump()
    raise TypeError(f"cannot write {type(value).__name__}")


def fields_of(completion: Completion) -> dict[str, Any]:
    """Return a reply as a dict for a record.

    `content`, `finish_reason`, `prompt_tokens`, `completion_tokens`, `cost_usd` and `model` are
    always there; `reasoning`, `left_out`, `tool_calls` and `raw` only if set. Values are not
    converted to JSON data, and log-probabilities are left out.
    """
    record: dict[str, Any] = {
        "content": completion.content,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "cost_usd": completion.cost_usd,
        "model": completion.model,
    }
    if completion.reasoning is not None:
        record["reasoning"] = completion.reasoning
    if completion.left_out:
        record["left_out"] = completion.left_out
    if completion.tool_calls:
        record["tool_calls"] = completion.tool_calls
    if completion.raw is not None:
        record["raw"] = completion.raw
    return record


def completion_of(record: dict[str, Any]) -> Completion:
    """Return the reply that a record of `fields_of` holds, without log-probabilities.

    `content` must be there; any other missing field gets its default, the finish reason `other`.
    Raise ValueError (of pydantic) or TypeError for an invalid record.
    """
    content = record["content"]
    if isinstance(content, list):
        content = tuple(_read_part(part) for part in content)
    return Completion(
        content=content,
        finish_reason=record.get("finish_reason", "other"),
        prompt_tokens=record.get("prompt_tokens"),
        completion_tokens=record.get("completion_tokens"),
        cost_usd=record.get("cost_usd"),
        model=record.get("model"),
        reasoning=_read_reasoning(record.get("reasoning")),
        left_out=tuple(map(str, record.get("left_out") or ())),
        tool_calls=tuple(map(ToolCall.model_validate, record.get("tool_calls") or ())),
        raw=record.get("raw"),
    )


def _read_reasoning(value: Any) -> Reasoning | None:
    return None if value is None else Reasoning.model_validate(value)


def _read_part(part: dict[str, Any]) -> TextPart | ImagePart:
    kind = TextPart if part.get("type") == "text" else ImagePart
    return kind.model_validate(part)


class AttemptLog:
    """A file of JSON lines (`attempts.jsonl`) next to the journal.

    An attempt's line holds its likely use, with a reply of full length; if it gives no reply, a
    second line holds its booking. The journal's line of a reply names its attempt. An attempt with
    neither was made by a process that was killed, and counts as billed.
    """

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)
        self._prefix = secrets.token_hex(4)
        self._number = 0

    def begin_attempt(self, key: str, need: Estimate) -> str:
        """Write that a call is about to be sent, with its likely use; return the attempt's new
        name.

        Raise RunError if it cannot be written.
        """
        self._number += 1
        name = f"{self._prefix}-{self._number}"
        tokens = math.ceil(need.tokens)
        self._write_record({"attempt": name, "key": key, "tokens": tokens, "usd": need.usd})
        return name

    def end_attempt(self, name: str, booked: Booking | None, why: str) -> None:
        """Write the booking of an attempt without a reply, and why; a booking of None means nothing
        was billed."""
        booked = booked or Booking(0, 0.0)
        self._write_record(
            {"attempt": name, "tokens": booked.tokens, "usd": booked.usd, "lost": why}
        )

    def total_cost(self, replied: Container[str]) -> tuple[int, float]:
        """Return (tokens, known dollars) of the attempts in the file whose names are not in
        `replied`.

        The last line of an attempt counts. Memory holds one entry for each. Without a file it is
        (0, 0).
        """
        costs: dict[str, tuple[int, float]] = {}
        for _, line in numbered_lines(self._records.path):
            record = parse_line(line)
            if "attempt" in record and (name := str(record["attempt"])) not in replied:
                costs[name] = amount_of(record)
        return sum(tokens for tokens, _ in costs.values()), sum(usd for _, usd in costs.values())

    def close(self) -> None:
        """Close the file; a later attempt opens it again."""
        self._records.close()

    def _write_record(self, record: dict[str, Any]) -> None:
        self._records.write(orjson.dumps(record))


def amount_of(record: dict[str, Any]) -> tuple[int, float]:
    """Return the (tokens, known dollars) in a line; an invalid amount counts as 0, so that no
    foreign line can free a budget."""
    tokens, usd = safe_count(record.get("tokens")), safe_dollars(record.get("usd"))
    return tokens or 0, usd or 0.0


MOST = 500
"""Most calls of a conversation that are read, and most failed attempts of a call."""


@dataclass
class CallHistory:
    """One call: its key, its newest record in the journal, and its failed attempts."""

    key: str
    reply: dict[str, Any] | None = None
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Attempts without a reply: `lost` says why, `tokens` and `usd` are their booking."""


def call_histories(journal: Path, key: str) -> list[CallHistory]:
    """Return the calls of the conversation with this key, in the order of their first lines.

    Calls with replies come first, then those that only failed. At most 500 calls with a reply and
    500 failed attempts of each are returned. The list is empty without files or calls.
    """
    histories: dict[str, CallHistory] = {}
    names: dict[str, str] = {}
    for record in _iter_records(journal.with_name("attempts.jsonl"), key):
        if "attempt" in record and "key" in record and len(names) < MOST * MOST:
            names[str(record["attempt"])] = str(record["key"])
    for record in _iter_records(journal, key):
        if len(histories) < MOST:
            history = histories.setdefault(str(record["key"]), CallHistory(str(record["key"])))
            history.reply = record
    if names:
        for record in _iter_lost(journal.with_name("attempts.jsonl")):
            owner = names.get(str(record.get("attempt")))
            if owner is not None:
                history = histories.setdefault(owner, CallHistory(owner))
                history.lost.append(record)
                del history.lost[MOST:]
    return list(histories.values())


def turn_of(key: str) -> int | None:
    """Return the turn number after the last `@` of a call's key: 3 for `q1#0@3`, `q1#0@3.1`,
    `q1#0@3~1`.

    Return None if no digit follows it. A key without `@` counts from its first character.
    """
    digits = ""
    for sign in key.rpartition("@")[2]:
        if not sign.isdecimal():
            break
        digits += sign
    return int(digits) if digits else None


def _iter_records(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation's calls, whose keys are its key, `@` and a turn."""
    mark = key.encode("utf-8", "surrogatepass")
    searchable = b'"' not in mark and b"\\" not in mark and mark.isascii()
    for _, line in numbered_lines(path):
        if not searchable or mark in line:
            record = parse_line(line)
            record_key = record.get("key")
            if isinstance(record_key, str) and record_key.rpartition("@")[0] == key:
                yield record


def _iter_lost(path: Path) -> Iterator[dict[str, Any]]:
    for _, line in numbered_lines(path):
        if b'"lost"' in line:
            yield parse_line(line)
