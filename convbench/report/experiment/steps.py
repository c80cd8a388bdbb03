"""The files of an experiment's folder: its planned steps and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from convbench.blot import told
from convbench.store.jsonl import disk_error, records, write_whole
from convbench.store.shape import read_object

FILE = "steps.jsonl"
"""File in the experiment's folder with a line a step that ended; the newest of a step counts."""
PLAN = "plan.json"
"""File in the experiment's folder with the title and all steps of the newest command."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned steps of an experiment."""

    title: str = ""
    steps: tuple[str, ...] = ()
    """Addresses of the steps."""


def write_plan(root: Path, title: str, steps: Sequence[str]) -> None:
    """Write the planned steps of an experiment, so that its report can list what is missing. Raises
    RunError if the folder cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(root, error) from None
    data = orjson.dumps({"title": title, "steps": list(steps)}, option=orjson.OPT_APPEND_NEWLINE)
    write_whole(root / PLAN, data)


def read_plan(root: Path) -> Plan:
    """Return the planned steps of an experiment; an empty plan if there is none."""
    found = read_object(root / PLAN)
    steps = found.get("steps")
    return Plan(
        str(found.get("title") or ""),
        tuple(str(step) for step in steps) if isinstance(steps, list) else (),
    )


def in_order_of(plan: Plan, cells: Sequence[Path]) -> list[Path]:
    """Return the folders of cells in the plan's order, then others by name."""
    names = list(dict.fromkeys(step.partition("/")[0] for step in plan.steps))
    place = {name: number for number, name in enumerate(names)}
    return sorted(cells, key=lambda path: (place.get(path.name, len(place)), path.name))


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ended last."""

    address: str
    """`CELL/KIND` or `CELL/KIND/CHECKPOINT`."""
    done: bool
    said: tuple[str, ...]
    """Why it failed, or what failed in it if it succeeded all the same."""
    seconds: float
    """Total duration of all tries."""

    @property
    def cell(self) -> str:
        """Return the folder name of its run."""
        return self.address.partition("/")[0]

    @property
    def name(self) -> str:
        """Return its kind and target, e.g. `train swift`."""
        return self.address.partition("/")[2].replace("/", " ")

    @property
    def why(self) -> str:
        """Return its name and reasons, as a sentence."""
        return f"{self.name}: {'; '.join(self.said) or 'it did not end well, and said nothing'}"


Ends = Mapping[str, StepEnd]
"""Steps that ended, by address."""


def read_ends(root: Path) -> dict[str, StepEnd]:
    """Return how each step of an experiment ended, by address; empty without a record."""
    found: dict[str, StepEnd] = {}
    for line in records(root / FILE, "address", "state"):
        address, took = line["address"], line.get("seconds")
        before = found[address].seconds if address in found else 0.0
        seconds = float(took) if isinstance(took, int | float) and 0 <= took < 1e9 else 0.0
        words = line.get("said")
        said = tuple(told(str(word)) for word in words) if isinstance(words, list) else ()
        found[address] = StepEnd(address, line["state"] == "done", said, before + seconds)
    return found
