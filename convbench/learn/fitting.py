"""Shared by all trainers: loading the model, arguments, progress lines, saving the checkpoint.

Imports torch and transformers; only a trainer that is about to fit imports this module.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import DistributedType, PartialState
from accelerate.utils import gather_object
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
from transformers.integrations import deepspeed as hf_deepspeed
from transformers.integrations.deepspeed import (
    is_deepspeed_zero3_enabled,
    unset_hf_deepspeed_config,
)

from convbench.errors import TrainError
from convbench.learn.job import Job, TrainingData, write_summary
from convbench.learn.launch import memory_ran_out, out_of_memory
from convbench.learn.steps import StepCount
from convbench.learn.stored_rows import StoredData
from convbench.schema.recipe import Lora
from convbench.store.jsonl import write_atomic


def on_cpu() -> bool:
    """Return True if neither CUDA nor MPS is available."""
    return not (torch.cuda.is_available() or torch.backends.mps.is_available())


def local_device() -> str:
    """Return the device of this process: `cuda:N`, N its LOCAL_RANK (else 0), `mps` or `cpu`."""
    if torch.cuda.is_available():
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def counting_dtype(device: Any) -> torch.dtype:
    """Return the precision for counts and their sums on a device: float64, or float32 on MPS, which
    has no float64."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


def training_precision(job: Job) -> str:
    """Return bf16, fp32 or fp64; `auto` is bf16 on a GPU that supports it, else fp32. Raise
    TrainError for fp64 on MPS, which does not have it."""
    setting = job.recipe.fit.precision
    if setting == "fp64" and counting_dtype(local_device()) != torch.float64:
        raise TrainError("fit.precision fp64: found MPS, which has no float64; expected fp32 here")
    if setting != "auto":
        return setting
    return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"


def load_model(
    job: Job, path: str | None = None, *, trained: bool = True, sharded: bool | None = None
) -> Any:
    """Return the model at `path` (None: the job's) in its training dtype.

    It is float64 for `fp64`; bf16 for a frozen base if the training computes in bf16; else float32
    (bf16 is then done by autocast or DeepSpeed). `trained=False` is for a model that is not
    trained; a trained one is loaded in 4 bits if the recipe quantizes. Under ZeRO-3 and FSDP one
    process reads the weights for all, once the training's arguments are made; `sharded` false loads
    them whole in each (None: as `trained`). Raise TrainError if it cannot be loaded.
    """
    lora = job.recipe.lora
    kind = training_precision(job)
    frozen = not trained or (lora is not None and job.recipe.distil is None)
    dtype = torch.float64 if kind == "fp64" else torch.float32
    if kind == "bf16" and frozen:
        dtype = torch.bfloat16
    options: dict[str, Any] = {"dtype": dtype}
    if lora is not None and lora.quantize == "4bit" and trained:
        options["quantization_config"] = _four_bits()
    path = path or job.model
    in_shards = trained if sharded is None else sharded
    try:
        with contextlib.nullcontext() if in_shards else _without_shards():
            return AutoModelForCausalLM.from_pretrained(str(Path(path).expanduser()), **options)
    except (OSError, ValueError) as error:
        raise TrainError(f"model {path!r}: {str(error).splitlines()[0]}") from None


@contextlib.contextmanager
def _without_shards() -> Iterator[None]:
    """Let models load whole during the block, under ZeRO-3 and FSDP too."""
    stored = hf_deepspeed._hf_deepspeed_config_weak_ref
    config, fsdp = stored() if stored is not None else None, os.environ.get(FSDP_LOADING)
    unset_hf_deepspeed_config()
    if fsdp is not None:
        os.environ[FSDP_LOADING] = "false"
    try:
        yield
    finally:
        if config is not None:
            hf_deepspeed.set_hf_deepspeed_config(config)
        if fsdp is not None:
            os.environ[FSDP_LOADING] = fsdp


def can_gather() -> bool:
    """Return True if weights that are loaded in shards can be had whole before an engine has them:
    those of ZeRO-3, and not those of FSDP, which stand in the first process alone."""
    return bool(is_deepspeed_zero3_enabled())


@contextlib.contextmanager
def gathered_weights(model: Any) -> Iterator[None]:
    """Give every process all weights of a model during the block, if ZeRO-3 loaded it in shards and
    no engine gathers them yet."""
    if not is_deepspeed_zero3_enabled():
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        yield


def _four_bits() -> Any:
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )


def lora_config(lora: Lora) -> Any:
    """Return the adapter as a peft LoraConfig."""
    from peft import LoraConfig

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules),
        task_type="CAUSAL_LM",
    )


def training_arguments(job: Job, *, trl: bool = True) -> dict[str, Any]:
    """Return the recipe as keyword arguments of a TRL configuration, or with `trl` false of
    transformers' TrainingArguments.

    Raise TrainError for activation offloading on a CPU or without TRL.
    """
    fit = job.recipe.fit
    if fit.activation_offloading and (on_cpu() or not trl):
        reason = "no accelerator whose memory would be saved" if trl else "a trainer without it"
        raise TrainError(
            f"fit.activation_offloading: found {reason}; expected false here, or "
            "fit.gradient_checkpointing=true"
        )
    of_trl = {"activation_offloading": fit.activation_offloading, "max_length": None}
    return {
        "output_dir": str(job.folder),
        "learning_rate": fit.learning_rate,
        "num_train_epochs": fit.epochs,
        "max_steps": fit.max_steps or -1,
        "per_device_train_batch_size": fit.batch_size,
        "gradient_accumulation_steps": fit.accumulation,
        "adam_beta1": fit.betas[0],
        "adam_beta2": fit.betas[1],
        "gradient_checkpointing": fit.gradient_checkpointing,
        "optim": optimizer_name(fit.optimizer),
        "lr_scheduler_type": "cosine_with_min_lr" if fit.floor else fit.scheduler,
        "lr_scheduler_kwargs": {"min_lr_rate": fit.floor} if fit.floor else {},
        "warmup_steps": fit.warmup_steps,
        "weight_decay": fit.weight_decay,
        "max_grad_norm": fit.max_grad_norm,
        "bf16": training_precision(job) == "bf16",
        "use_cpu": on_cpu(),
        "seed": fit.seed,
        "data_seed": fit.seed,
        "logging_steps": fit.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "no" if fit.save == "end" else "epoch",
        "save_total_limit": fit.save_limit,
        "report_to": "none",
        "run_name": job.recipe.name,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": not on_cpu(),
        **(of_trl if trl else {}),
    }


def optimizer_name(optimizer: str) -> str:
    """Return transformers' name of an optimiser: on an accelerator AdamW in one kernel, whose step
    needs no copy of all moments (four bytes a weight)."""
    return "adamw_torch_fused" if optimizer == "adamw_torch" and not on_cpu() else optimizer


def with_cpu_fsdp(args: Any) -> Any:
    """Return a trainer's arguments, and enable FSDP on CPUs if the launch shards by it: accelerate
    would silently train data parallel there."""
    args.device  # noqa: B018 - creates accelerate's state of the processes
    if on_cpu() and os.environ.get("ACCELERATE_USE_FSDP") == "true":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    return args


FSDP_LOADING = "FSDP_CPU_RAM_EFFICIENT_LOADING"
"""Environment variable, set by accelerate: whether one process reads the weights for all."""
GLUE = "\u00a0"
"""No-break space: marks where a progress line must not be broken."""


class ProgressLines(TrainerCallback):
    """Writes one line to stderr for every log entry, wrapped between its numbers on a terminal; the
    last step always gets one."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request a log entry for the last step."""
        if state.global_step >= state.max_steps:
            control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write step and numbers."""
        if not state.is_world_process_zero or not logs:
            return
        numbers = (f"{k}{GLUE}{v:.4g}" for k, v in logs.items() if isinstance(v, float))
        line = "  ".join((f"step{GLUE}{state.global_step}/{state.max_steps}", *numbers))
        if sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            line = textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False)
        print(line.replace(GLUE, " "), file=sys.stderr)


def device_name() -> str:
    """Return the name of this process's device: its GPU's, `Apple GPU` or `CPU`."""
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(local_device()))
    return "Apple GPU" if torch.backends.mps.is_available() else "CPU"


class TrainingClock(TrainerCallback):
    """Measures the seconds of a training. After a resume those up to the saved epoch are added."""

    def __init__(self, file: Path) -> None:
        """`file` keeps the seconds up to the last saved epoch, for a resume."""
        self.file = file
        self.earlier = 0.0
        self.began = self.seconds = 0.0
        self.devices: Counter[str] = Counter()
        """Number of processes by name of their device."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        if state.global_step > 0 and self.file.exists():
            self.earlier = float(json.loads(self.file.read_text()))
        self.began = time.monotonic()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the seconds so far into the file."""
        if state.is_world_process_zero:
            write_atomic(self.file, json.dumps(self._seconds_so_far()).encode())

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop the clock."""
        self.seconds = self._seconds_so_far()

    def _seconds_so_far(self) -> float:
        return self.earlier + time.monotonic() - self.began


def _time_figures(trainer: Any) -> dict[str, Any]:
    """Return `seconds` and `devices` for `training.json`; empty if they were not measured."""
    clocks = (c for c in trainer.callback_handler.callbacks if isinstance(c, TrainingClock))
    clock = next(clocks, None)
    if clock is None:
        return {}
    return {"seconds": round(clock.seconds, 3), "devices": dict(clock.devices)}


def drops_last_batch(job: Job, rows: int) -> bool:
    """Return True if several processes are to leave out a last batch that they cannot share evenly,
    unless it is the only one: accelerate would refill it with rows of the first and count these
    twice."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    return processes > 1 and rows >= processes * job.recipe.fit.batch_size


def run_training(trainer: Any, job: Job, steps: StepCount) -> None:
    """Print the number of steps, then train, from the last saved epoch if the folder has one.
    Raises TrainError if memory runs out."""
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProgressLines)
    clock = TrainingClock(job.folder / "clock.json")
    trainer.add_callback(clock)
    if trainer.is_world_process_zero():
        all_steps = replace(steps, processes=trainer.args.world_size)
        print(all_steps.describe(), file=sys.stderr)
    try:
        trainer.train(resume_from_checkpoint=last_complete_epoch(Path(trainer.args.output_dir)))
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or memory_ran_out(str(error)):
            raise TrainError(out_of_memory(job.recipe.fit)) from None
        raise
    clock.devices = Counter(gather_object([device_name()]))


def last_complete_epoch(folder: Path) -> str | None:
    """Return the path, as text, of the newest `checkpoint-STEP` folder that was saved completely,
    or None.

    Its state file is written last, and must be valid JSON.
    """
    states = folder.glob("checkpoint-*/trainer_state.json")
    complete = [file.parent for file in states if _is_json(file)]
    newest = max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    return str(newest) if newest else None


def _is_json(file: Path) -> bool:
    """Return True if a file holds complete JSON."""
    try:
        json.loads(file.read_bytes())
    except ValueError:
        return False
    return True


def save_checkpoint(
    trainer: Any, job: Job, data: TrainingData | StoredData[Any], **more: Any
) -> None:
    """Save weights, tokenizer with chat template, and `training.json` in the job's folder, so that
    any loader takes it.

    A LoRA adapter that is to be merged is saved in `adapter/`, and the merged model beside it.
    States to resume from are deleted unless `fit.save` is `keep`. `more` are further fields of
    `training.json`. The process group is closed at the end.
    """
    lora = job.recipe.lora
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.config.use_cache = True  # off for training only; whoever loads this will sample
    if hasattr(model, "merge_and_unload") and lora is not None and lora.merge:
        _save_merged(trainer, job)
    else:
        trainer.save_model(str(job.folder))
    if trainer.is_world_process_zero():
        job.chat.tokenizer.save_pretrained(str(job.folder))
        leftovers = (
            "training_args.bin",
            "probe-*.json",
            "clock.json",
            "adapter/training_args.bin",
            "adapter/README.md",
        )
        for file in (match for pattern in leftovers for match in job.folder.glob(pattern)):
            file.unlink()  # pickles that say what recipe.yaml says, and notes for a resume
        log = [entry for entry in trainer.state.log_history if entry]
        done = {"processes": trainer.args.world_size, "steps": trainer.state.max_steps}
        done |= _time_figures(trainer)
        write_summary(job, data, log, **done, **more)
        if job.recipe.fit.save != "keep":  # after the summary: until then a resume needs them
            for step in job.folder.glob("checkpoint-*"):
                shutil.rmtree(step, ignore_errors=True)
    close_process_group()


def close_process_group() -> None:
    """Close the process group, if there is one, in all processes at once: gloo aborts when one
    leaves early."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _save_merged(trainer: Any, job: Job) -> None:
    """Save the adapter under `adapter/`, then the base with the adapter merged into it."""
    folder = job.folder / "adapter"
    trainer.save_model(str(folder))  # gathers sharded weights; every process takes part
    if not trainer.is_world_process_zero():
        return
    zero3 = trainer.is_deepspeed_enabled and is_deepspeed_zero3_enabled()
    if zero3 or trainer.is_fsdp_enabled or getattr(trainer.model, "is_loaded_in_4bit", False):
        merged = _merge_reloaded(job, folder)
    else:
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    merged.save_pretrained(str(job.folder))


def _merge_reloaded(job: Job, folder: Path) -> Any:
    """Return the base, loaded again unsharded and not quantized, with the saved adapter merged."""
    from peft import PeftModel

    unset_hf_deepspeed_config()  # else loading would shard, and wait for the other processes
    dtype = torch.bfloat16 if training_precision(job) == "bf16" else torch.float32
    base = AutoModelForCausalLM.from_pretrained(str(Path(job.model).expanduser()), dtype=dtype)
    return PeftModel.from_pretrained(base, str(folder)).merge_and_unload()


def silence_libraries() -> None:
    """Turn off the libraries' own progress bars and warnings."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    from transformers.utils import logging

    logging.disable_progress_bar()
    with contextlib.suppress(ImportError):
        from datasets.utils.logging import disable_progress_bar

        disable_progress_bar()
