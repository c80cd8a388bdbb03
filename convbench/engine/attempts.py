"""The attempts of a run's calls: written before they are sent, so that none is forgotten."""

from __future__ import annotations

import math
import secrets
from collections.abc import Container
from pathlib import Path
from typing import Any

import orjson

from convbench.engine.booking import Booked
from convbench.engine.need import Estimate
from convbench.net.tidy import count, dollars
from convbench.store.jsonl import Appender, lines, parse


class Attempts:
    """A file of JSON lines (`attempts.jsonl`) beside the journal.

    An attempt's line holds what it is likely billed, its reply at full length; where it gives no
    reply, a second one holds what it was booked with. The journal's line of a reply names its
    attempt. A line that stands alone is an attempt whose process was killed: it counts as billed.
    """

    def __init__(self, path: Path) -> None:
        self._records = Appender(path)
        self._prefix = secrets.token_hex(4)
        self._number = 0

    def begin(self, key: str, need: Estimate) -> str:
        """Note that a call is about to be sent; return the attempt's name."""
        self._number += 1
        name = f"{self._prefix}-{self._number}"
        tokens = math.ceil(need.tokens)
        self._write({"attempt": name, "key": key, "tokens": tokens, "usd": need.usd})
        return name

    def end(self, name: str, booked: Booked | None, why: str) -> None:
        """Note what an attempt without a reply was booked with; None: nothing was billed."""
        booked = booked or Booked(0, 0.0)
        self._write({"attempt": name, "tokens": booked.tokens, "usd": booked.usd, "lost": why})

    def totals(self, replied: Container[str]) -> tuple[int, float]:
        """Return tokens and known dollars of attempts without a reply; memory holds those."""
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
    """Return the tokens and known dollars that a line holds; what is no amount counts 0, so that
    no line of a file from elsewhere makes room in a budget."""
    tokens, usd = count(record.get("tokens")), dollars(record.get("usd"))
    return tokens or 0, usd or 0.0
