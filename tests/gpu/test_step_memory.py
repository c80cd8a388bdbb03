"""One step of each kind of training at Llama-3.1-8B's shape on a real card, where vLLM is here with
an engine of the same shape beside it: plan beside peak."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from convbench.learn.memory import Kind
from convbench.models.devices import list_devices
from convbench.models.vllm import can_run
from tests.gpu.beside import does_fit_beside, serve_random_weights, share_of_engine
from tests.helpers.cards import used

pytestmark = pytest.mark.skipif(
    shutil.which("nvidia-smi") is None or not list_devices(), reason="no GPU here (nvidia-smi)"
)
PROGRAM = """
import json, sys
import torch
from tests.bench.step_memory import SIZE
from tests.bench.step_memory_real import train_here
from tests.gpu.beside import planned_step

kind, name = sys.argv[1:]
recipe, plan = planned_step(kind, name)
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


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[float, float]]:
    """Bytes that vLLM may take of the first card, and those that it takes."""
    if not can_run():
        pytest.skip("no vLLM here (CONVBENCH_VLLM_PYTHON names the interpreter that has it)")
    card = list_devices()[0]
    share = share_of_engine("8B", card.memory)
    if share is None:
        pytest.skip(f"{card.memory / 1e9:.0f} GB hold no engine of 8B")
    before = used()
    with serve_random_weights(tmp_path_factory.mktemp("vllm"), card, share):
        yield share * card.memory, used() - before


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_step_fits_beside_vllm(
    engine: tuple[float, float], kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    planned, taken = engine
    memory = list_devices()[0].memory
    if not does_fit_beside(kind, "8B", memory):
        pytest.skip(f"{kind}: does not fit {memory / 1e9:.0f} GB beside an engine, as planned")
    with capsys.disabled():
        print(f"vLLM: planned {planned / 1e9:.1f} GB, takes {taken / 1e9:.1f} GB")
    assert taken <= planned + 1e9, "its share, and CUDA's context"
    train_one_step(kind, capsys, "beside vLLM")
