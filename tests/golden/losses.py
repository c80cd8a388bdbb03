"""What the first three steps of each training compute, in fp32 from the packaged policy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from convbench.learn.launch import Context, fit_rows
from convbench.learn.rows import Chats, pair_rows
from convbench.learn.steps import row_limit
from convbench.learn.train import PROGRAMS, make_material, resolve
from convbench.models.weights_path import check_weights
from convbench.options.shared import CallOptions, SpecOptions
from convbench.store.run import Run
from tests.golden.rows import Log

WEIGHTED = ("refit", "swift", "star-gate", "swift-anchored", "awr", "a-lol", "ppo")
PAIRED = ("dpo", "step-dpo", "ipo")
FIT = {
    "fit.precision": "fp32", "fit.max_steps": 3, "fit.log_every": 1, "fit.save": "end",
    "fit.batch": 4, "fit.batch_size": 2, "fit.learning_rate": 1e-4,
    "launch": "none",
}  # fmt: skip
"""One rate for all, at which no loss explodes; optimiser, schedule and clipping are the recipe's.
"""


def losses(log: Log, referenced: Log, folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Train every learner for three steps; yield its name with `loss` and `gradient` (norm before
    clipping) of each step, and after the last the norms of the `parameters` and of how far they
    `moved`.

    `referenced` is the log with hidden references; checkpoints are made in the folder.
    """
    for name in (*WEIGHTED, *PAIRED):
        yield name, _trained(log, name, folder / name)
    teacher = str(folder / "star-gate")
    yield "star-gate-d", _trained(log, "star-gate-d", folder / "d", **{"distil.teacher": teacher})
    yield "mt-dpo", _trained(referenced, "mt-dpo", folder / "mt-dpo")
    yield "critic", _trained(referenced, "sweet", folder / "critic", trainer="critic")
    yield "sweet", _trained(referenced, "sweet", folder / "sweet", pairs=True)


def _trained(
    log: Log, name: str, folder: Path, *, pairs: bool = False, **sets: Any
) -> dict[str, Any]:
    from safetensors.torch import load_file

    runs, specs = [Run.open(log.run)], SpecOptions()
    recipe = resolve(log.recipe(name, **FIT, **sets), runs, None, None)
    place = check_weights("pocket")
    context = Context(place, row_limit(recipe), CallOptions(), specs, "none", in_process=True)
    if pairs:
        chats = Chats(place, "loss")
        material = pair_rows(log.candidates(), recipe, chats, context.limit)
    else:
        material = make_material(recipe, runs, context)
    fit_rows(folder, recipe, material, context, PROGRAMS.get(str(recipe.trainer)))
    log_lines = json.loads((folder / "training.json").read_text())["log"]
    steps = [line for line in log_lines if "loss" in line]
    after = load_file(folder / "model.safetensors")
    before = load_file(Path(check_weights("pocket")) / "model.safetensors")
    return {
        "loss": [float(step["loss"]) for step in steps],
        "gradient": [float(step["grad_norm"]) for step in steps],
        "parameters": _norm(after.values()),
        "moved": _norm(weight.double() - before[name].double() for name, weight in after.items()),
    }


def _norm(tensors: Iterable[Any]) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))
