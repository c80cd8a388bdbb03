"""The record of a run's batches, written before they are sent: see `engine.batches`."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from convbench.engine.budget import Estimate
from convbench.engine.journal import amount_of
from convbench.store.jsonl import Appender, numbered_lines, parse_line
from convbench.util.untrusted import safe_count, safe_dollars

FILE = "batches.jsonl"
ID = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
"""Valid names of a provider's batch, which become part of an address."""


@dataclass
class SentBatch:
    """One batch as the file records it."""

    mark: str
    """Our name for it."""
    wave: int
    """Number of the wave that it belongs to."""
    model: str
    """Reference of the model."""
    calls: list[tuple[str, str, tuple[str, ...]]]
    """Journal key, hash and parameters that were not sent, of each call."""
    worst: Estimate
    """The most that all calls may use."""
    begun: float
    """Seconds since the epoch of its first line."""
    batch: str | None = None
    """The provider's name for it; None if it is not known to exist."""
    ended: str | None = None
    """How it ended, in the provider's word or ours."""
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of its calls, `answered` and `failed`."""

    def request_name(self, number: int) -> str:
        """Return the name of a request; its attempt in the journal has the same name."""
        return f"{self.mark}-{number}"

    def number_of(self, name: str) -> int | None:
        """Return the number of the request with this name; None if the batch has no such one."""
        mark, _, rest = name.rpartition("-")
        number = int(rest) if rest.isascii() and rest.isdecimal() and len(rest) < 8 else -1
        return number if mark == self.mark and 0 <= number < len(self.calls) else None

    @property
    def state(self) -> str:
        """Return its last recorded step: how it ended, else `sent` or `about to be sent`."""
        return self.ended or ("sent" if self.batch else "about to be sent")


class BatchLog:
    """Reads and writes the file of a run's batches."""

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)

    def read_batches(self) -> list[SentBatch]:
        """Return all batches in their order, with their latest state; invalid lines are skipped."""
        batches: dict[str, SentBatch] = {}
        for _, line in numbered_lines(self._records.path):
            record = parse_line(line)
            mark = str(record.get("mark"))
            if mark in batches:
                _apply(batches[mark], record)
            elif isinstance(record.get("calls"), list):
                rows = [row for row in record["calls"] if isinstance(row, list) and len(row) == 3]
                calls = [(str(row[0]), str(row[1]), tuple(map(str, row[2]))) for row in rows]
                worst = Estimate(amount_of(record)[0], safe_dollars(record.get("usd")))
                wave, at = safe_count(record.get("wave")) or 0, record.get("at")
                batches[mark] = SentBatch(
                    mark, wave, str(record.get("model")), calls, worst, safe_dollars(at) or 0.0
                )
        return list(batches.values())

    def write_intent(self, sent: SentBatch) -> None:
        """Append the line that says that a batch is about to be sent."""
        record: dict[str, Any] = {"mark": sent.mark, "wave": sent.wave, "model": sent.model}
        record |= {"at": sent.begun, "tokens": sent.worst.tokens, "usd": sent.worst.usd}
        self._records.write(orjson.dumps(record | {"calls": sent.calls}))

    def write_note(self, sent: SentBatch, **what: Any) -> None:
        """Append a step of a batch (`batch` or `ended`, with its counts); apply it to `sent`."""
        record = {"mark": sent.mark, "at": time.time(), **what}
        self._records.write(orjson.dumps(record))
        _apply(sent, record)

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        self._records.close()


def _apply(sent: SentBatch, record: dict[str, Any]) -> None:
    """Update a batch with a later line of the file."""
    batch = record.get("batch")
    if isinstance(batch, str) and ID.fullmatch(batch):
        sent.batch = batch
    sent.ended = record.get("ended") or sent.ended
    sent.counts = record.get("counts") or sent.counts


def open_batches(folder: Path) -> list[SentBatch]:
    """Return the batches in a run's folder that have not ended; empty without a file of batches."""
    return [sent for sent in BatchLog(folder / FILE).read_batches() if sent.ended is None]


def unreplied_cost(batches: Iterable[SentBatch], replied: Collection[str]) -> tuple[int, float]:
    """Return (tokens, dollars) of batches that have not ended or are gone: the share of their worst
    case that belongs to requests whose names are not in `replied`. An unknown price counts as 0."""
    tokens, usd = 0, 0.0
    for sent in batches:
        if sent.ended in (None, "gone"):
            left = sum(sent.request_name(n) not in replied for n in range(len(sent.calls)))
            share = left / max(1, len(sent.calls))
            tokens += round(sent.worst.tokens * share)
            usd += (sent.worst.usd or 0.0) * share
    return tokens, usd
