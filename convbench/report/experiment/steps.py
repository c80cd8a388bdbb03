"""How the steps of an experiment ended, as its folder's record says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from convbench.store.jsonl import records

FILE = "steps.jsonl"
"""In the experiment's folder: a line a step that ended, the newest of a step counts."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ended the last time."""

    address: str
    """`CELL/KIND` or `CELL/KIND/CHECKPOINT`."""
    done: bool
    said: tuple[str, ...]
    """Why it did not end well, or what failed in it where that was not too much."""
    seconds: float
    """How long it took, all tries together."""

    @property
    def cell(self) -> str:
        """Folder name of its run."""
        return self.address.partition("/")[0]

    @property
    def name(self) -> str:
        """Its kind, and of what: `train swift`."""
        return self.address.partition("/")[2].replace("/", " ")

    @property
    def why(self) -> str:
        """What it said, in a sentence."""
        return f"{self.name}: {'; '.join(self.said) or 'it did not end well, and said nothing'}"


Ends = Mapping[str, StepEnd]
"""By address."""


def read_ends(root: Path) -> dict[str, StepEnd]:
    """Return how each step of an experiment ended; empty without a record."""
    found: dict[str, StepEnd] = {}
    for line in records(root / FILE, "address", "state"):
        address, took = line["address"], line.get("seconds")
        before = found[address].seconds if address in found else 0.0
        seconds = float(took) if isinstance(took, int | float) and 0 <= took < 1e9 else 0.0
        words = line.get("said")
        said = tuple(str(word) for word in words) if isinstance(words, list) else ()
        found[address] = StepEnd(address, line["state"] == "done", said, before + seconds)
    return found
