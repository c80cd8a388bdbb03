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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from convbench.engine.budget import Estimate, Spend
from convbench.schema import Completion, FrozenModel, Message, Sampling, without_stable
from convbench.store.jsonl import Appender, numbered_lines, parse_line
from convbench.util.untrusted import safe_count, safe_dollars

_START = b'{"key":"'
REPLY = TypeAdapter(Completion)
"""Reads the reply in a record."""
_RARE = ("reasoning", "left_out", "tool_calls", "raw")


def call_hash(ref: str, sampling: Sampling, messages: Sequence[Message]) -> str:
    """Return 16 hex digits that identify a call by its model reference, sampling settings and
    messages, without their marks of stable prefixes."""
    data = orjson.dumps(
        [ref, sampling.model_dump(), without_stable(messages)],
        default=dump_noun,
        option=orjson.OPT_SORT_KEYS,
    )
    return hashlib.sha256(data).hexdigest()[:16]


def dump_noun(value: FrozenModel) -> dict[str, Any]:
    """Return a pydantic model's fields, for orjson's `default`."""
    return value.model_dump()


def reply_record(completion: Completion) -> dict[str, Any]:
    """Return a reply's fields for a record; those that are rare only if they are set."""
    fields = ((name, getattr(completion, name)) for name in Completion.__dataclass_fields__)
    return {name: value for name, value in fields if value or name not in _RARE}


class Journal:
    """The finished calls of a run, in a file of JSON lines. A reply survives a kill of this process
    once `append` has returned. Memory holds only the loaded calls, until they are taken."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._records = Appender(path)
        self._loaded: dict[tuple[str, str], bytes] = {}

    def load_calls(self, keys: Callable[[str], bool] = lambda _key: True) -> int:
        """Load the calls whose key `keys` accepts into memory; return how many are there then. The
        calls of invalid lines, such as the torn last one of a killed process, are made again."""
        for _, line in numbered_lines(self.path):
            if line.startswith(_START):
                record = parse_line(line)
                key, mark = record.get("key"), record.get("hash")
                if isinstance(key, str) and isinstance(mark, str) and keys(key):
                    self._loaded[key, mark] = line
        return len(self._loaded)

    def take(self, key: str, hash: str) -> Completion | None:
        """Return the reply of a call that `load_calls` loaded, once, and forget it; None if there
        is none. Calls appended since then are not found."""
        try:
            return REPLY.validate_json(self._loaded.pop((key, hash), b""))
        except ValidationError:
            return None

    def hold(self, key: str, need: Estimate, attempt: str = "") -> str:
        """Write what a call that is about to be sent may need; return the attempt's new name. Raise
        RunError if it cannot be written: that must not cost a call."""
        name = attempt or secrets.token_hex(6)
        record = {"held": name, "key": key, "tokens": need.tokens, "usd": need.usd}
        self._records.write(orjson.dumps(record))
        return name

    def append(
        self,
        key: str,
        hash: str,
        reply: Completion,
        attempt: str = "",
        used: Estimate | None = None,
    ) -> None:
        """Write one finished call, with the name of its attempt and what was booked, if that is not
        its reported usage. The call is not loaded. Raise RunError if it cannot be written."""
        record = {"key": key, "hash": hash, **reply_record(reply)}
        record |= {"attempt": attempt} if attempt else {}
        record |= {"booked": used._asdict()} if used is not None else {}
        self._records.write(orjson.dumps(record, default=dump_noun))

    def append_lost(self, key: str, why: str, attempt: str, used: Estimate) -> None:
        """Write a failed attempt, why it failed and what was booked for it."""
        record = {"lost": why, "attempt": attempt or None, "key": key, **used._asdict()}
        self._records.write(orjson.dumps(record))

    def read_costs(self) -> tuple[Spend, dict[str, Estimate]]:
        """Return (what all ended attempts in the file used, what those without an end hold, by
        their name)."""
        spent, held = Spend(), dict[str, Estimate]()
        for _, line in numbered_lines(self.path):
            record = parse_line(line)
            if "held" in record:
                held[str(record["held"])] = _amount_of(record)
            else:
                held.pop(str(record.get("attempt")), None)
                spent.add(_amount_of(record))
        return spent, held

    def total_cost(self) -> Estimate:
        """Return (tokens, known dollars) of all calls in the file: replies, lost attempts, and held
        ones that a killed process left without an end. Without a file it is (0, 0.0)."""
        spent, held = self.read_costs()
        for need in held.values():
            spent.add(need)
        return Estimate(spent.tokens, spent.usd)

    def close(self) -> None:
        """Close the file; a later append opens it again."""
        self._records.close()


def _amount_of(record: dict[str, Any]) -> Estimate:
    """Return what a line books: as it says, else the reported usage of its reply; nothing for an
    invalid amount."""
    amount = record.get("booked") or record
    tokens, usd = [amount.get("tokens")], amount.get("usd")
    if "content" in amount:
        tokens, usd = (
            [record.get("prompt_tokens"), record.get("completion_tokens")],
            record.get("cost_usd"),
        )
    return Estimate(sum(safe_count(one) or 0 for one in tokens), safe_dollars(usd) or 0.0)


def iter_calls(path: Path, key: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a conversation's calls, replies and lost attempts, whose keys are its
    key, `@` and a turn."""
    mark = orjson.dumps(key)[1:-1]
    for _, line in numbered_lines(path):
        if mark in line:
            record = parse_line(line)
            if str(record.get("key")).rpartition("@")[0] == key and "held" not in record:
                yield record
