"""The journal of a run's model calls, which makes resume exact to the call.

`calls.jsonl` has a line for each reply that was paid for, written before the reply is used:

    {"key":"3f…#0@1","hash":"9c01…","content":"The answer is A.","finish_reason":"stop",
     "prompt_tokens":120,"completion_tokens":6,"cost_usd":2.2e-05,"model":"gpt-4o-mini"}

With a budget a call also has a line when it is held, so that a crash forgets no cost, and the line
of its reply names it; a failed attempt that was billed, or was held, has a line that says why:

    {"held":"a1b2-7","key":"3f…#0@1","tokens":812,"usd":0.0004}
    {"lost":"HTTP 500","attempt":"a1b2-7","key":"3f…#0@1","tokens":812,"usd":0.0004}
"""

from __future__ import annotations

import hashlib
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from convbench.engine.budget import Estimate
from convbench.schema import Completion, FrozenModel, Message, Sampling, without_stable
from convbench.store.jsonl import Appender, numbered_lines, parse_line
from convbench.util.untrusted import safe_count, safe_dollars

_START = b'{"key":"'
_LAST = "\U0010ffff"
"""Sorts after every character that a key may hold."""
_COMPLETION = TypeAdapter(Completion)
_ALWAYS = (
    "content",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "model",
)
_IF_SET = ("reasoning", "left_out", "tool_calls", "raw")


def call_hash(ref: str, sampling: Sampling, messages: Sequence[Message]) -> str:
    """Return 16 hex digits that identify a call by its model reference, sampling settings and
    messages, without their marks of stable prefixes."""
    data = orjson.dumps(
        [ref, sampling.model_dump(), without_stable(messages)],
        default=dump_noun,
        option=orjson.OPT_SORT_KEYS,
    )
    return hashlib.sha256(data).hexdigest()[:16]


def dump_noun(value: object) -> object:
    """Return a pydantic model's fields as a dict, for orjson's `default`."""
    if isinstance(value, FrozenModel):
        return value.model_dump()
    raise TypeError(f"cannot write {type(value).__name__}")


def reply_record(completion: Completion) -> dict[str, Any]:
    """Return a reply's fields for a record; those that are rare only if they are set."""
    record = {name: getattr(completion, name) for name in _ALWAYS}
    return record | {name: value for name in _IF_SET if (value := getattr(completion, name))}


def read_reply_record(line: bytes) -> Completion:
    """Return the reply in a record. Raise ValueError (of pydantic) for an invalid one."""
    return _COMPLETION.validate_json(line)


class Journal:
    """The finished calls of a run, in a file of JSON lines.

    A reply survives a kill of this process once `append` has returned (it is in the system's cache;
    no fsync). Memory holds only the loaded calls, until they are forgotten.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records = Appender(path)
        self._loaded: dict[tuple[str, str], bytes] = {}
        self._order: list[tuple[str, str]] = []
        self._prefix = secrets.token_hex(4)
        self._attempts = 0

    def load_calls(self, keys: Callable[[str], bool] = lambda _key: True) -> int:
        """Load the calls whose key `keys` accepts into memory; return how many are in memory then.

        Invalid lines, such as the torn last one of a killed process, are skipped: their calls are
        made again.
        """
        for _, line in numbered_lines(self.path):
            if line.startswith(_START):
                record = parse_line(line)
                key, mark = record.get("key"), record.get("hash")
                if isinstance(key, str) and isinstance(mark, str) and keys(key):
                    self._loaded[key, mark] = line
        self._order = sorted(self._loaded)
        return len(self._loaded)

    def get(self, key: str, hash: str) -> Completion | None:
        """Return the reply of a call that `load_calls` loaded; None if there is none.

        Calls appended since then are not found.
        """
        line = self._loaded.get((key, hash))
        try:
            return None if line is None else read_reply_record(line)
        except ValidationError:
            return None

    def hold(self, key: str, need: Estimate) -> str:
        """Write what a call that is about to be sent may need; return the attempt's new name.

        Raise RunError if it cannot be written: that must not cost a call.
        """
        self._attempts += 1
        name = f"{self._prefix}-{self._attempts}"
        record = {"held": name, "key": key, "tokens": need.tokens, "usd": need.usd}
        self._records.write(orjson.dumps(record))
        return name

    def append(
        self,
        key: str,
        hash: str,
        completion: Completion,
        attempt: str | None = None,
        booked: Estimate | None = None,
    ) -> None:
        """Write one finished call, with the name of its attempt and what was booked, if that is not
        its reported usage. The call is not loaded. Raise RunError if it cannot be written."""
        record = {"key": key, "hash": hash, **reply_record(completion)}
        if attempt is not None:
            record["attempt"] = attempt
        if booked is not None:
            record["booked"] = {"tokens": booked.tokens, "usd": booked.usd}
        self._records.write(orjson.dumps(record, default=dump_noun))

    def append_lost(self, key: str, why: str, attempt: str | None, booked: Estimate) -> None:
        """Write a failed attempt, why it failed and what was booked for it."""
        record: dict[str, Any] = {"lost": why, "attempt": attempt, "key": key}
        record |= {"tokens": booked.tokens, "usd": booked.usd}
        self._records.write(orjson.dumps(record))

    def total_cost(self) -> tuple[int, float]:
        """Return (tokens, known dollars) of all calls in the file: replies, lost attempts, and held
        ones that a killed process left without an end. Without a file it is (0, 0.0)."""
        tokens, usd = 0, 0.0
        held: dict[str, tuple[int, float]] = {}
        for _, line in numbered_lines(self.path):
            record = parse_line(line)
            if "held" in record:
                held[str(record["held"])] = amount_of(record)
                continue
            held.pop(str(record.get("attempt")), None)
            more = amount_of(record.get("booked") or _reported(record))
            tokens, usd = tokens + more[0], usd + more[1]
        for more in held.values():
            tokens, usd = tokens + more[0], usd + more[1]
        return tokens, usd

    def attempts_with_reply(self) -> set[str]:
        """Return the names of all attempts in the file that have a reply."""
        records = (
            parse_line(line) for _, line in numbered_lines(self.path) if b'"attempt"' in line
        )
        return {str(record["attempt"]) for record in records if "content" in record}

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
        """Close the file; a later append opens it again."""
        self._records.close()


def _reported(record: dict[str, Any]) -> dict[str, Any]:
    """Return the usage that a provider reported for a reply; a lost attempt's record itself."""
    if "content" not in record:
        return record
    counts = (safe_count(record.get(name)) or 0 for name in ("prompt_tokens", "completion_tokens"))
    return {"tokens": sum(counts), "usd": record.get("cost_usd")}


def amount_of(record: dict[str, Any]) -> tuple[int, float]:
    """Return the (tokens, known dollars) in a record; an invalid amount counts as 0."""
    return safe_count(record.get("tokens")) or 0, safe_dollars(record.get("usd")) or 0.0


def iter_calls(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation's calls, replies and lost attempts, whose keys are its
    key, `@` and a turn."""
    mark = orjson.dumps(key)[1:-1]
    for _, line in numbered_lines(path):
        if mark in line:
            record = parse_line(line)
            if str(record.get("key")).rpartition("@")[0] == key and "held" not in record:
                yield record


def turn_of(key: str) -> int | None:
    """Return the turn number after the last `@` of a call's key: 3 for `q1#0@3` and `q1#0@3.1`;
    None if no digit follows it."""
    rest = key.rpartition("@")[2]
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return int(digits) if digits else None
