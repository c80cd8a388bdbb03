"""What became of every step, kept beside the runs."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import orjson

from convbench.report.experiment.steps import FILE
from convbench.store.jsonl import Appender, records

State = Literal["done", "failed", "waits"]
"""`waits`: a step that it needs is not there."""


@dataclass(frozen=True)
class Outcome:
    """How a step ended."""

    address: str
    mark: str
    """Fingerprint of all that the experiment says of it."""
    state: State
    said: tuple[str, ...] = ()
    """Why it failed or waits, or what failed in it where that was not too much."""
    seconds: float = 0.0
    """How long it took."""
    trace: str = ""
    """Where it broke, should it be no mistake of the user's."""


class Record:
    """The file of outcomes; a line that a kill tore is left out."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self._lock = threading.Lock()
        self.found: dict[tuple[str, str], Outcome] = {}
        for line in records(self.path, "address", "mark", "state"):
            said = tuple(str(word) for word in line.get("said") or ())
            state: State = "done" if line["state"] == "done" else "failed"
            self.found[line["address"], line["mark"]] = Outcome(
                line["address"], line["mark"], state, said
            )

    def of(self, address: str, mark: str) -> Outcome | None:
        """Return how a step of these settings ended the last time."""
        return self.found.get((address, mark))

    def whole(self, address: str, mark: str) -> bool:
        """Whether a step of these settings ended, and nothing in it failed."""
        last = self.of(address, mark)
        return last is not None and last.state == "done" and not last.said

    def write(self, outcome: Outcome) -> None:
        """Keep how a step ended."""
        self.found[outcome.address, outcome.mark] = outcome
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._lock, Appender(self.path) as file:
            file.write(orjson.dumps({**asdict(outcome), "at": at}))
