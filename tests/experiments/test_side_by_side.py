"""A whole experiment with its cells side by side on two simulated devices: what comes of it is what
comes of one step after the other, and a device is free again before its next step begins."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from convbench.store import Run
from tests.helpers.cli import environment, records
from tests.support.later import needs
from tests.support.processes import gone

needs("torch")

WAIT_S = 600.0
"""A process that takes longer has hung."""
CELLS = ("pocket-thinking-seed0", "pocket-standard-seed0")
SPEC: dict[str, Any] = {
    "extends": "pocket", "title": "side by side", "seeds": [0], "modes": ["thinking", "standard"],
    "learners": ["refit"], "count": 6, "samples": 2, "temperatures": [0.7], "max_tokens": 24,
    "recipe_sets": {"all": {"fit.max_steps": 2, "fit.save": "end"}},
}  # fmt: skip


def went(folder: Path, name: str, *devices: str) -> dict[str, Any]:
    """Do the experiment in a process of its own; return what was seen of it."""
    words = ["-m", "tests.experiments.beside", "spec.yaml", name, f"{name}.json", *devices]
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment(), capture_output=True, text=True,
        timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return seen


def results(root: Path, cell: str) -> dict[str, Any]:
    """Return all that is said and scored in a cell, evaluation too."""
    run = Run.open(root / cell)
    [evaluated] = run.child_runs()
    found: dict[str, Any] = {}
    for place, one in (("run", run), ("eval", evaluated)):
        conversations = list(one.conversations())
        keys = {c.conversation_id: c.key for c in conversations}
        found[place] = {
            "said": {c.key: [(t.speaker, t.content) for t in c.turns] for c in conversations},
            "scored": {keys[v.conversation_id]: (v.reward, dict(v.scores)) for v in one.verdicts()},
        }
        assert len(found[place]["scored"]) == len(conversations)
    return found


def weights(root: Path, cell: str) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = load_file(root / cell / "checkpoints" / "refit" / "model.safetensors")
    return found


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_cells_side_by_side_are_as_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    alone = went(tmp_path, "alone")
    beside = went(tmp_path, "beside", "2")

    assert alone["most"] == 0, "without devices all is in one process"
    assert alone["steps"] == beside["steps"]
    assert set(map(tuple, beside["steps"].values())) == {("done",)}
    assert len(beside["steps"]) == 8
    for name in ("alone", "beside"):
        kept = {(one["address"], one["state"]) for one in records(tmp_path / name / "steps.jsonl")}
        assert kept == {(address, "done") for address in beside["steps"]}
    for cell in CELLS:
        one, other = (results(tmp_path / name, cell) for name in ("alone", "beside"))
        assert len(one["run"]["said"]) == 12
        assert one == other, cell
        first, second = (weights(tmp_path / name, cell) for name in ("alone", "beside"))
        assert all((first[name] - second[name]).abs().max() < 1e-6 for name in first)

    assert len(beside["pids"]) == 2, "each training is a process"
    assert not beside["shared"], "no process meets the one before it on a device"
    for begun in beside["begun"]:
        assert len(begun["there"]) < 2, "what holds a model then is the other cell's"
    assert not beside["left"]
    assert all(gone(int(pid), seconds=0.1) for pid in beside["pids"])
