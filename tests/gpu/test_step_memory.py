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
from convbench.learn.memory import step_memory
from tests.bench.step_memory import SIZE, inner_settings, recipe_of, shape_named
from tests.bench.step_memory_real import train_here

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
ROOT = Path(__file__).resolve().parents[2]


def train_one_step(kind: str, capsys: pytest.CaptureFixture[str], where: str) -> None:
    """Train in a process of its own, print plan and peak, and compare them."""
    command = [sys.executable, "-c", PROGRAM, kind, "8B"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    plan, peak = found["plan"], found["peak"]
    with capsys.disabled():
        print(f"{kind}, {where}: planned {plan / 1e9:.1f} GB, peak {peak / 1e9:.1f} GB")
    assert peak <= plan, "nothing is planned that does not fit"
    assert plan - found["planned_margin"] <= 1.25 * peak, "nor twice of it"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_step_takes_what_the_plan_says(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    train_one_step(kind, capsys, "alone")
