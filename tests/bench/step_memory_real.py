"""Real training steps on the CPU: how much this process grew at its peak, beside the plan.

    python -m tests.bench.step_memory_real [--launch NAME] KIND MODEL [lora] [checkpointing]

Prints one line of JSON for each process. Before, the same trainer runs on a model of 20 thousand
weights, so that what libraries load is not counted. The peak is Linux's own (VmHWM), set back
when the model is not there yet.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from convbench import catalog
from convbench.learn.launch import accelerate_config, worker_environment
from convbench.learn.memory import ShardPlan, StepRows, shard_plan, step_memory
from convbench.schema.recipe import Fit, LaunchSpec
from tests.bench import step_memory as fake

TINY = {"vocab_size": 512, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 32, "tie_word_embeddings": True}  # fmt: skip
LAUNCH = "CONVBENCH_BENCH_LAUNCH"
"""Environment variable: the settings that this process was launched with, as JSON."""


def peak_bytes() -> int:
    """Return the most resident bytes since they were set back."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def reset_peak() -> int:
    """Set the peak back to what is resident now, and return it."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def train_here(kind: Any, name: str, recipe: Any, size: StepRows) -> None:
    """Run the trainer on real numbers."""
    from transformers import AutoModelForCausalLM

    def load(path: str, dtype: Any, **_: Any) -> Any:
        model = fake.random_model(name, dtype)
        for weight in model.parameters():
            weight.data.normal_(0, 0.02)
        return model

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(AutoModelForCausalLM, "from_pretrained", load),
        contextlib.redirect_stdout(sys.stderr),
    ):
        fake.train(kind, name, recipe, size, Path(folder))


def main() -> None:
    """Measure one training."""
    if sys.argv[1] == "--launch":
        start_two(*sys.argv[2:])
    import torch

    kind: Any = sys.argv[1]
    name = sys.argv[2]
    torch.set_num_threads(1)
    size = StepRows(2, 256, 64)
    rows = 1 if kind in ("preference", "critic") else 2
    recipe = fake.recipe_of(
        kind, lora="lora" in sys.argv, rows=rows, precision="fp32",
        gradient_checkpointing="checkpointing" in sys.argv,
    )  # fmt: skip
    shards = ShardPlan()
    if LAUNCH in os.environ:
        from tests.helpers.workers.gradients import gloo_alone

        launch = json.loads(os.environ[LAUNCH])
        shards = shard_plan(LaunchSpec(name="bench", title="bench", accelerate=launch))
        gloo_alone()
    fake.MODELS["tiny"] = TINY
    train_here(kind, "tiny", recipe, size)
    before = reset_peak()
    train_here(kind, name, recipe, size)
    grown = peak_bytes() - before
    settings = fake.inner_settings(recipe) if kind == "pretraining" else recipe
    plan = step_memory(
        kind, fake.shape_named(name), settings, size, precision="fp32", shards=shards, device="cpu"
    )
    plan = replace(plan, margin=0.0)
    adapter = "LoRA" if recipe.lora else "full"
    where = f"ZeRO-{shards.stage}" if shards.stage else shards.engine
    where = f", {shards.processes} processes, {where}" if shards.processes > 1 else ""
    print(json.dumps({
        "cell": f"{kind}, {adapter}, {name}, fp32 on the CPU{where}",
        "plan_mb": round(plan.total / 1e6), "grown_mb": round(grown / 1e6),
        "ratio": round(plan.total / grown, 3),
        "parts_mb": {part: round(size / 1e6) for part, size in vars(plan).items() if size},
    }))  # fmt: skip


def start_two(name: str, *arguments: str) -> None:
    """Run the same in two processes of a launch, without offload."""
    sets = {
        f"accelerate.deepspeed_config.offload_{what}_device": "none" for what in
        ("optimizer", "param") if name.startswith("zero")
    }  # fmt: skip
    spec = catalog.load_spec(LaunchSpec, "launch", name, sets=sets)
    settings = accelerate_config(spec, Fit(accumulation=1), bf16=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "accelerate.yaml"
        file.write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
        env = {**worker_environment(spec, 0), LAUNCH: json.dumps(spec.accelerate)}
        done = subprocess.run([*command, "-m", __spec__.name, *arguments], env=env, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
