"""The record of a run's batches, written before they are sent, so that none is lost or sent twice.

`batches.jsonl` lies next to the journal. The first line of a batch (its intent) holds the mark it
is sent under and its calls; later lines hold its progress: the file it was uploaded as, the name
that the provider gave it, how it ended. A batch without an end may still be in progress.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from convbench.engine.budget import CallSize
from convbench.models.batch import ID
from convbench.net.untrusted_json import safe_count, safe_dollars
from convbench.store.jsonl import Appender, numbered_lines, parse_line

FILE = "batches.jsonl"


@dataclass(frozen=True, slots=True)
class SentCall:
    """One call in a batch: its journal key and hash, its bounds, and the requested parameters that
    were not sent."""

    key: str
    hash: str
    size: CallSize
    left_out: tuple[str, ...] = ()


@dataclass
class SentBatch:
    """One batch as the file records it."""

    mark: str
    """Our name for it."""
    wave: int
    """Number of the wave that it belongs to."""
    model: str
    calls: list[SentCall]
    usd: float | None
    """Worst case of all calls in dollars, followed by tokens."""
    tokens: int
    at: float
    """Seconds since the epoch of its last step."""
    begun: float
    """Seconds since the epoch of its intent."""
    file: str | None = None
    """The provider's name for the uploaded file of requests."""
    batch: str | None = None
    """The provider's name for it; None if it is not known to exist."""
    guessed: bool = False
    """`batch` was found in the provider's list; only its results show whether it is ours."""
    others: set[str] = field(default_factory=set)
    """Batches that were mistaken for it."""
    ended: str | None = None
    """How it ended, in the provider's word or ours."""
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers of its results, by outcome."""
    lost: tuple[int, float] = (0, 0.0)
    """Tokens and dollars billed for unusable replies."""

    def request_name(self, number: int) -> str:
        """Return the name of a request, `MARK-NUMBER`; its attempt in the journal has the same
        name."""
        return f"{self.mark}-{number}"

    def request_number(self, name: str) -> int | None:
        """Return the number of the request with this name, from 0; None if the batch has no such
        request."""
        mark, _, rest = name.rpartition("-")
        if mark != self.mark or not rest.isdecimal() or not rest.isascii() or len(rest) > 7:
            return None
        return int(rest) if int(rest) < len(self.calls) and str(int(rest)) == rest else None

    @property
    def state(self) -> str:
        """Return its last recorded step: how it ended, else `sent`, `uploaded` or `about to be
        sent`."""
        if self.ended is not None:
            return self.ended
        return "sent" if self.batch else "uploaded" if self.file else "about to be sent"


class BatchLog:
    """Reads and writes the file of a run's batches."""

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)

    def read_batches(self) -> list[SentBatch]:
        """Return all batches in the order of their intents, with their latest state; invalid lines
        are skipped.

        The list is empty without a file.
        """
        batches: dict[str, SentBatch] = {}
        for _, line in numbered_lines(self._records.path):
            record = parse_line(line)
            mark = record.get("mark")
            if not isinstance(mark, str):
                continue
            if mark in batches:
                _apply_record(batches[mark], record)
            elif (sent := _read_intent(mark, record)) is not None:
                batches[mark] = sent
        return list(batches.values())

    def write_intent(self, sent: SentBatch) -> None:
        """Append the line that says that a batch is about to be sent.

        Raise RunError if it cannot be written.
        """
        calls = [
            [
                call.key,
                call.hash,
                call.size.text,
                call.size.prompt,
                call.size.reply,
                *call.left_out,
            ]
            for call in sent.calls
        ]
        self._write_record(
            {
                "mark": sent.mark,
                "wave": sent.wave,
                "model": sent.model,
                "at": sent.at,
                "tokens": sent.tokens,
                "usd": sent.usd,
                "calls": calls,
            }
        )

    def write_note(self, sent: SentBatch, **what: Any) -> None:
        """Append a step of a batch (`file`, `batch`, `other` or `ended`, with its details); apply
        it to `sent`.

        Raise RunError if it cannot be written; `sent` is then unchanged.
        """
        record = {"mark": sent.mark, "at": time.time(), **what}
        self._write_record(record)
        _apply_record(sent, record)

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        self._records.close()

    def _write_record(self, record: dict[str, Any]) -> None:
        self._records.write(orjson.dumps(record))


def open_batches(folder: Path) -> list[SentBatch]:
    """Return the batches in a run's folder that have not ended; empty without a file of batches."""
    return [sent for sent in BatchLog(folder / FILE).read_batches() if sent.ended is None]


def unreplied_cost(batches: Iterable[SentBatch], replied: Collection[str]) -> tuple[int, float]:
    """Return (tokens, dollars) of batches beyond the replies in the journal.

    They are what unusable replies were billed and, for an unfinished batch, the share of its worst
    case that belongs to requests whose names are not in `replied`. An unknown price counts as 0
    dollars.
    """
    tokens, usd = 0, 0.0
    for sent in batches:
        tokens, usd = tokens + sent.lost[0], usd + sent.lost[1]
        if sent.ended is None:
            left = sum(1 for n in range(len(sent.calls)) if sent.request_name(n) not in replied)
            share = left / max(1, len(sent.calls))
            tokens, usd = tokens + round(sent.tokens * share), usd + (sent.usd or 0.0) * share
    return tokens, usd


def _read_intent(mark: str, record: dict[str, Any]) -> SentBatch | None:
    rows = record.get("calls")
    if not isinstance(rows, list) or not isinstance(record.get("model"), str):
        return None
    calls = list(_read_calls(rows))
    at = safe_dollars(record.get("at")) or 0.0
    return SentBatch(
        mark,
        safe_count(record.get("wave")) or 0,
        record["model"],
        calls,
        safe_dollars(record.get("usd")),
        safe_count(record.get("tokens")) or 0,
        at,
        at,
    )


def _read_calls(rows: list[Any]) -> Iterator[SentCall]:
    for row in rows:
        if isinstance(row, list) and len(row) >= 5:
            text, prompt, reply = (max(1, safe_count(value) or 1) for value in row[2:5])
            left_out = tuple(str(name)[:40] for name in row[5:11])
            yield SentCall(str(row[0]), str(row[1]), CallSize(text, prompt, reply), left_out)


def _apply_record(sent: SentBatch, record: dict[str, Any]) -> None:
    """Update a batch with a later line of the file."""
    sent.at = safe_dollars(record.get("at")) or sent.at
    sent.file = _short_text(record.get("file")) or sent.file
    if batch := _batch_name(record.get("batch")):
        sent.batch, sent.guessed = batch, record.get("guessed") is True
    if other := _batch_name(record.get("other")):
        sent.others.add(other)
        sent.batch = None
    sent.ended = _short_text(record.get("ended")) or sent.ended
    counts = record.get("counts")
    if isinstance(counts, dict):
        sent.counts = {str(name): safe_count(value) or 0 for name, value in counts.items()}
    lost = record.get("lost")
    if isinstance(lost, dict):
        sent.lost = safe_count(lost.get("tokens")) or 0, safe_dollars(lost.get("usd")) or 0.0


def _short_text(value: object) -> str | None:
    return value[:500] if isinstance(value, str) and value else None


def _batch_name(value: object) -> str | None:
    """Return a provider's name for a batch if it is safe as part of an address, else None."""
    return value if isinstance(value, str) and ID.fullmatch(value) else None
