"""Worker of `test_side_by_side`: does an experiment and writes what it saw of its processes.

    python -m tests.experiments.beside SPEC ROOT SEEN.json [DEVICES]

`DEVICES` is how many are simulated; with them both builds must have begun before either goes on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convbench.experiments.run import StepProgress
from convbench.models.devices import VISIBLE
from tests.helpers import stages
from tests.helpers.cards import simulate

WAIT_S = 500.0
OURS = ("/trainers/",)
"""What is in the command of a process that holds a model."""


def holders() -> list[dict[str, Any]]:
    """Return this process's children that train: what they are, and their device."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            words = (place / "cmdline").read_bytes().decode().split("\0")
            lines = (place / "environ").read_bytes().decode().split("\0")
            said = dict(line.partition("=")[::2] for line in lines)
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
        kind = next((one for one in OURS if any(one in word for word in words)), None)
        if parent == os.getpid() and kind:
            found.append({"pid": int(place.name), "kind": kind, "device": said.get(VISIBLE)})
    return found


def watched(stop: threading.Event, seen: dict[str, Any]) -> None:
    """Look again and again who holds a model on which device."""
    while not stop.wait(0.02):
        there = holders()
        devices = [one["device"] for one in there if one["device"]]
        seen["most"] = max(seen["most"], len(there))
        seen["pids"].update({one["pid"]: one["kind"] for one in there})
        if len(set(devices)) < len(devices):
            seen["shared"].append(there)


def teller(seen: dict[str, Any], meet: bool) -> Callable[[StepProgress], None]:
    """Return what hears of steps as they begin."""
    both = threading.Barrier(2)

    def tell(progress: StepProgress) -> None:
        seen["begun"].append({"address": progress.address, "there": holders()})
        if meet and progress.address.endswith("/build"):
            both.wait(WAIT_S)

    return tell


def main(spec: str, root: str, file: str, devices: str = "") -> None:
    """Do it and write what was seen."""
    if devices:
        simulate(pytest.MonkeyPatch(), int(devices))
    seen: dict[str, Any] = {
        "most": 0, "pids": {}, "shared": [], "begun": [],
    }  # fmt: skip
    stop = threading.Event()
    thread = threading.Thread(target=watched, args=(stop, seen))
    thread.start()
    try:
        done = stages.experiment(
            spec, run=Path(root), tell=teller(seen, bool(devices)),
            concurrency=1,  # a reply depends on nothing beside it
        )  # fmt: skip
    finally:
        stop.set()
        thread.join()
    seen["left"] = holders()
    seen["steps"] = {one.address: [one.state, *one.said] for one in done.outcomes}
    Path(file).write_text(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
