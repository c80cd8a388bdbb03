"""The files of an experiment's folder: its runs, its planned steps and how they ended."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from convbench.store.jsonl import disk_error, read_records, write_atomic
from convbench.store.shape import read_object
from convbench.util.redact import redact_error

FILE = "steps.jsonl"
"""File in the experiment's folder with a line a step that ended; the newest of a step counts."""
PLAN = "plan.json"
"""File in the experiment's folder with the title and all steps of the newest command."""
CELL = re.compile(r"-seed\d+$")
"""End of the name of a cell's folder."""


def is_experiment(folder: Path) -> bool:
    """Return whether a folder is no run, but has `plan.json`, `steps.jsonl` or the run of a
    cell."""
    if (folder / "run.json").exists():
        return False
    cells = any(CELL.search(path.name) for path in cells_in(folder))
    return cells or any((folder / name).exists() for name in (PLAN, FILE))


def cells_in(root: Path) -> list[Path]:
    """Return the folders of runs directly in a folder, sorted, without links."""
    folders = (file.parent for file in root.glob("*/run.json"))
    return sorted(path for path in folders if not path.is_symlink())


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """The planned steps of an experiment."""

    title: str = ""
    steps: tuple[str, ...] = ()
    """Addresses of the steps."""
    printed: bool = False
    """Whether its report sets the papers' printed numbers beside ours."""


def write_plan(root: Path, title: str, steps: Sequence[str], *, printed: bool = False) -> None:
    """Write title and addresses of the planned steps as `plan.json`, in place of an earlier one.

    The folder is created. Raise RunError if it cannot be written.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(root, error) from None
    plan = {"title": title, "steps": list(steps), "printed": printed}
    data = orjson.dumps(plan, option=orjson.OPT_APPEND_NEWLINE)
    write_atomic(root / PLAN, data)


def read_plan(root: Path) -> ExperimentPlan:
    """Return the planned steps of an experiment; an empty plan if there is no `plan.json`.

    Raise RunError if it is damaged.
    """
    record = read_object(root / PLAN)
    steps = record.get("steps")
    return ExperimentPlan(
        str(record.get("title") or ""),
        tuple(str(step) for step in steps) if isinstance(steps, list) else (),
        bool(record.get("printed")),
    )


def sort_cells(plan: ExperimentPlan, cells: Sequence[Path]) -> list[Path]:
    """Return the folders in the order in which the plan first names them, then those that it does
    not name, sorted by name."""
    names = list(dict.fromkeys(step.partition("/")[0] for step in plan.steps))
    order = {name: number for number, name in enumerate(names)}
    return sorted(cells, key=lambda path: (order.get(path.name, len(order)), path.name))


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step ended last."""

    address: str
    """`CELL/KIND` or `CELL/KIND/CHECKPOINT`."""
    done: bool
    reasons: tuple[str, ...]
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
        """Return `NAME: REASONS`, the reasons joined by `; `; for a step without reasons, that it
        failed without a message."""
        return f"{self.name}: {'; '.join(self.reasons) or 'it failed without a message'}"


StepEnds = Mapping[str, StepEnd]
"""Steps that ended, by address."""


def read_ends(root: Path) -> dict[str, StepEnd]:
    """Return how each step ended last, by address, in the order of first appearance in
    `steps.jsonl`; empty without that file.

    `seconds` is the sum over all its lines. API keys in the reasons are redacted. Raise RunError
    for a line that is no object, or lacks `address` or `state`.
    """
    ends: dict[str, StepEnd] = {}
    for line in read_records(root / FILE, "address", "state"):
        address, took = line["address"], line.get("seconds")
        before = ends[address].seconds if address in ends else 0.0
        seconds = float(took) if isinstance(took, int | float) and 0 <= took < 1e9 else 0.0
        words = line.get("said")
        reasons = (
            tuple(redact_error(str(word)) for word in words) if isinstance(words, list) else ()
        )
        ends[address] = StepEnd(address, line["state"] == "done", reasons, before + seconds)
    return ends
