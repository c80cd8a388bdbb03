"""One step of each kind of training at Llama-3.1-8B's shape on a real card: plan beside peak."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from convbench.learn.memory import Kind
from convbench.models.devices import list_devices

pytestmark = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None or not list_devices(), reason="no GPU here (nvidia-smi)"
)
PROGRAM = """
import json, sys
import torch
from tests.bench.step_memory import SIZE, inner_settings, recipe_of, shape_named
from tests.bench.step_memory_real import train_here
from convbench.learn.memory import step_memory

kind, name = sys.argv[1:]
rows = SIZE.rows // (2 if kind in ("preference", "critic") else 1)
recipe = recipe_of(kind, lora=True, rows=rows)
settings = inner_settings(recipe) if kind == "pretraining" else recipe
plan = step_memory(kind, shape_named(name), settings, SIZE)
train_here(kind, name, recipe, SIZE)
peak = torch.cuda.max_memory_allocated()
print(json.dumps({"plan": plan.total, "planned_margin": plan.margin, "peak": peak}))
"""
"""One training of two steps in bf16 with an adapter and random weights, in a process of its own."""


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_step_takes_what_the_plan_says(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, kind, "8B"]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"{kind}: planned {found['plan'] / 1e9:.1f} GB, peak {found['peak'] / 1e9:.1f} GB")
    assert found["peak"] <= found["plan"], "nothing is planned that does not fit"
    assert found["plan"] - found["planned_margin"] <= 1.25 * found["peak"], "nor twice of it"
