"""Worker of the exactness tests: train with the real trainer, write what it did to a file.

    python -m tests.helpers.workers.gradients --recipe FILE      under any launcher

Writes GRADIENTS beside the recipe: the gradient of every parameter at every step, before
clipping, and the parameters at the end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.rows import training_rows
from convbench.learn.weighted_sft import weighted_trainer
from convbench.learn.weights import Weighted

GRADIENTS = "gradients.pt"


def gloo_alone() -> None:
    """Let gloo carry everything, as DeepSpeed does on any system but Linux: its own shared memory
    for processes of one machine is compiled at a first launch, a minute of two cores. Other
    launches need none of it."""
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") != "true":
        return
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


class Record(TrainerCallback):
    """Keeps the gradients of each step."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.steps: list[dict[str, torch.Tensor]] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """DeepSpeed takes its step inside the backward pass: look just before it."""
        engine = self.trainer.model_wrapped
        if not self.trainer.is_deepspeed_enabled:
            return
        from deepspeed.utils import safe_get_full_grad

        step = engine.step

        def look_and_step(*args: Any, **kwargs: Any) -> Any:
            if engine.is_gradient_accumulation_boundary():
                self.steps.append(self.take(safe_get_full_grad))
            return step(*args, **kwargs)

        engine.step = look_and_step

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Without DeepSpeed and without clipping the gradients are there as they are."""
        if not self.trainer.is_deepspeed_enabled:
            self.steps.append(self.take(lambda parameter: parameter.grad))

    def take(self, read: Any) -> dict[str, torch.Tensor]:
        """Copy the gradient of every parameter that is trained."""
        found = {}
        for name, parameter in self.trainer.model.named_parameters():
            if parameter.requires_grad:
                gradient = read(parameter)
                assert gradient is not None, name
                found[name] = gathered(gradient).float().cpu()
        return found


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor, gathered where FSDP has cut it; every process takes part."""
    found = tensor.detach()
    return (found.full_tensor() if hasattr(found, "full_tensor") else found).clone()


def parameters(trainer: Any) -> dict[str, torch.Tensor]:
    """Every parameter, whole."""
    if not trainer.is_deepspeed_enabled:
        return {n: gathered(p).cpu() for n, p in trainer.model.named_parameters()}
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param

    found = {}
    for name, parameter in trainer.model.named_parameters():
        whole = safe_get_full_fp32_param(parameter)
        if whole is None:
            with deepspeed.zero.GatheredParameters([parameter]):
                whole = parameter.detach()
        found[name] = whole.clone().cpu()
    return found


def record(job: Job, weighted: Weighted) -> dict[str, Any]:
    """Train a weighted learner and return what it did."""
    fitting.silence_libraries()
    rows = training_rows(weighted, job.chat, job.max_length, job.recipe.data.unit)
    return watched(weighted_trainer(job, rows.rows))


def watched(trainer: Any) -> dict[str, Any]:
    """Train and return gradients, parameters and the log, of any trainer."""
    recorder = Record(trainer)
    trainer.add_callback(recorder)
    trainer.train()
    log = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "steps": recorder.steps,
        "parameters": parameters(trainer),
        "loss": log,
        "log_ratio": [e["log_ratio"] for e in trainer.state.log_history if "log_ratio" in e],
        "processes": trainer.args.world_size,
        "deepspeed": trainer.is_deepspeed_enabled,
        "fsdp": trainer.accelerator.is_fsdp2,
        "main": trainer.is_world_process_zero(),
    }


def main(file: Path) -> None:
    """Read the recipe, train, write."""
    from convbench.learn import launch

    job = Job.from_file(file)
    weighted = launch.load_trainer(launch.locate_trainer(str(job.recipe.trainer))).data(job)
    gloo_alone()
    found = record(job, weighted)
    if found["main"]:
        torch.save(found, file.with_name(GRADIENTS))
    fitting.close_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # as trainers leave: gloo's threads race the interpreter's end
