"""What an experiment's folder says of its steps: which were to be, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from convbench.blot import told
from convbench.store.jsonl import disk_error, records, write_whole
from convbench.store.shape import read_object

FILE = "steps.jsonl"
"""In the experiment's folder: a line a step that ended, the newest of a step counts."""
PLAN = "plan.json"
"""In the experiment's folder: the title and all steps of the newest command."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an experiment was to do."""

    title: str = ""
    steps: tuple[str, ...] = ()
    """Addresses."""


def write_plan(root: Path, title: str, steps: Sequence[str]) -> None:
    """Keep what an experiment is to do, so that a report says what is missing."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(root, error) from None
    data = orjson.dumps({"title": title, "steps": list(steps)}, option=orjson.OPT_APPEND_NEWLINE)
    write_whole(root / PLAN, data)


def read_plan(root: Path) -> Plan:
    """Return what an experiment was to do; nothing where no plan lies there."""
    found = read_object(root / PLAN)
    steps = found.get("steps")
    return Plan(
        str(found.get("title") or ""),
        tuple(str(step) for step in steps) if isinstance(steps, list) else (),
    )


def in_order_of(plan: Plan, cells: Sequence[Path]) -> list[Path]:
    """Return the folders of cells in the plan's order, others after them."""
    names = list(dict.fromkeys(step.partition("/")[0] for step in plan.steps))
    place = {name: number for number, name in enumerate(names)}
    return sorted(cells, key=lambda path: (place.get(path.name, len(place)), path.name))


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
        said = tuple(told(str(word)) for word in words) if isinstance(words, list) else ()
        found[address] = StepEnd(address, line["state"] == "done", said, before + seconds)
    return found
