"""What the programs of this folder share: `PROGRAM CHECKPOINT`, options of TRL, resuming, saving.

A program needs the checkpoint's folder alone: `recipe.yaml` and `rows/`, which `convbench train`
wrote. Any launcher starts it: `accelerate launch trainers/weighted_sft.py CHECKPOINT`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import trl.trainer.utils
from accelerate.utils import gather_object
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from transformers.integrations.deepspeed import (
    is_deepspeed_zero3_enabled,
    unset_hf_deepspeed_config,
)
from transformers.utils import logging
from trl.models import prepare_deepspeed, prepare_fsdp

from convbench.errors import ConvbenchError, TrainError
from convbench.learn.launch import ERROR_PREFIX, GUARDED, memory_ran_out, out_of_memory, read_recipe
from convbench.learn.rows import ROWS, read_about
from convbench.learn.steps import Steps, batches_of
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import TRAINING
from convbench.store.jsonl import write_atomic
from convbench.util.guard import die_with_parent

# TRL scores labelled positions only where it has Triton, and every position on a CPU.
trl.trainer.utils._use_triton = lambda device: True
CLOCK = "clock.json"
"""Seconds of a training up to its last saved epoch, for a resume."""


def main(run: Callable[[Path, Recipe], None]) -> None:
    """Start a program: read `sys.argv`, run, close the process group.

    A ConvbenchError ends it with the line `convbench: error: …`."""
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} CHECKPOINT")
    if os.environ.get(GUARDED):
        die_with_parent()  # a killed launcher would leave its workers running
    folder = Path(sys.argv[1])
    try:
        run(folder, read_recipe(folder))
    except ConvbenchError as error:
        raise SystemExit(f"{ERROR_PREFIX}{error}") from None
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()  # gloo aborts when one process leaves early
        torch.distributed.destroy_process_group()


def load_rows(folder: Path) -> Any:
    """Return the rows of a checkpoint's folder as a `datasets.Dataset`."""
    from datasets import load_from_disk
    from datasets.utils.logging import disable_progress_bar

    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    logging.disable_progress_bar()
    disable_progress_bar()
    return load_from_disk(str(folder / ROWS))


def on_cpu() -> bool:
    """Return True if neither CUDA nor MPS is available."""
    return not (torch.cuda.is_available() or torch.backends.mps.is_available())


def in_bf16(recipe: Recipe) -> bool:
    """Return whether the training computes in bf16; `auto` does on a GPU that supports it."""
    if recipe.fit.precision == "auto":
        return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    return recipe.fit.precision == "bf16"


def arguments(folder: Path, recipe: Recipe, rows: int) -> dict[str, Any]:
    """Return the recipe as keyword arguments of a configuration of TRL or transformers."""
    fit, processes = recipe.fit, int(os.environ.get("WORLD_SIZE", "1"))
    size, accumulation = batches_of(fit, processes)
    return {
        "output_dir": str(folder),
        "learning_rate": fit.learning_rate,
        "num_train_epochs": fit.epochs,
        "max_steps": fit.max_steps or -1,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        "gradient_checkpointing": fit.gradient_checkpointing,
        "bf16": in_bf16(recipe),
        "use_cpu": on_cpu(),
        "seed": fit.seed,
        "data_seed": fit.seed,
        "logging_steps": fit.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "no" if fit.save == "end" else "epoch",
        "report_to": "none",
        "run_name": recipe.name,
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": not on_cpu(),
        # accelerate would refill a last batch with rows of the first and count these twice
        "dataloader_drop_last": processes > 1 and rows >= processes * size,
        **fit.arguments,
    }


def trl_arguments(folder: Path, recipe: Recipe, rows: int) -> dict[str, Any]:
    """Return the same for a trainer of TRL, which loads the model itself."""
    dtype = "bfloat16" if in_bf16(recipe) and recipe.lora is not None else "float32"
    values = arguments(folder, recipe, rows)
    return {"max_length": None, "model_init_kwargs": {"dtype": dtype}, **values}


def adapter_options(recipe: Recipe) -> dict[str, Any]:
    """Return `peft_config` and `quantization_config` of a recipe with LoRA; empty without."""
    if recipe.lora is None:
        return {}
    from peft import LoraConfig

    lora = recipe.lora
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=list(lora.target_modules),
        task_type="CAUSAL_LM",
    )
    if lora.quantize == "none":
        return {"peft_config": config}
    from transformers import BitsAndBytesConfig

    four_bits = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )
    return {"peft_config": config, "quantization_config": four_bits}


def load_model(path: str, dtype: torch.dtype = torch.float32) -> Any:
    """Return a model by path or Hub id. Raise TrainError if it cannot be loaded."""
    try:
        return AutoModelForCausalLM.from_pretrained(str(Path(path).expanduser()), dtype=dtype)
    except (OSError, ValueError) as error:
        raise TrainError(f"model {path!r}: {str(error).splitlines()[0]}") from None


def frozen_model(trainer: Any, path: str, recipe: Recipe) -> Any:
    """Return a model that is not trained, placed beside a trainer's own."""
    model = load_model(path, torch.bfloat16 if in_bf16(recipe) else torch.float32)
    model.eval().requires_grad_(False)
    trl.trainer.utils.add_fused_lm_head(model)
    if trainer.is_deepspeed_enabled:
        return prepare_deepspeed(model, trainer.accelerator)
    if trainer.is_fsdp_enabled:
        return prepare_fsdp(model, trainer.accelerator)
    return trainer.accelerator.prepare_model(model, evaluation_mode=True)


class ProgressLines(TrainerCallback):
    """Writes one line to stderr for every log entry; the last step always gets one."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request a log entry for the last step."""
        control.should_log |= state.global_step >= state.max_steps

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write step and numbers."""
        if state.is_world_process_zero and logs:
            numbers = (f"{k} {v:.4g}" for k, v in logs.items() if isinstance(v, float))
            print(
                f"step {state.global_step}/{state.max_steps}", *numbers, sep="  ", file=sys.stderr
            )


class Clock(TrainerCallback):
    """Measures the seconds of a training. After a resume those up to the saved epoch are added."""

    def __init__(self, file: Path) -> None:
        self.file, self.began = file, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        resumed = state.global_step > 0 and self.file.exists()
        self.began = time.monotonic() - (float(self.file.read_text()) if resumed else 0.0)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the seconds so far into the file."""
        if state.is_world_process_zero:
            write_atomic(self.file, json.dumps(self.seconds).encode())

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return round(time.monotonic() - self.began, 3)


def train(trainer: Any, folder: Path, recipe: Recipe, **figures: Any) -> None:
    """Train, from the last saved epoch if there is one, and save the checkpoint.

    `figures` are further fields of `training.json`, or functions that return them once it is
    trained. Raise TrainError if memory runs out.
    """
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProgressLines)
    clock = Clock(folder / CLOCK)
    trainer.add_callback(clock)
    about = read_about(folder)
    rows = len(trainer.train_dataset)
    steps = Steps(rows, about["unit"], recipe.fit, trainer.args.world_size)
    if trainer.is_world_process_zero():
        print(steps.line(), file=sys.stderr)
    try:
        trainer.train(resume_from_checkpoint=last_epoch(folder, trainer.args.world_size))
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, MemoryError) or memory_ran_out(str(error)):
            raise TrainError(out_of_memory(recipe.fit)) from None
        raise
    figures = {
        "processes": trainer.args.world_size,
        "steps": trainer.state.max_steps,
        "rows_left_out": steps.left_out,
        "seconds": clock.seconds,
        "devices": dict(Counter(gather_object([_device_name()]))),
        **{name: value() if callable(value) else value for name, value in figures.items()},
    }
    save(trainer, folder, recipe, about, figures)


def last_epoch(folder: Path, processes: int) -> str | None:
    """Return the newest `checkpoint-STEP` that was saved completely, or None.

    Its state file is written last, and must be valid JSON. Raise TrainError if other processes than
    these share its optimiser (ZeRO).
    """
    states = folder.glob("checkpoint-*/trainer_state.json")
    complete = [file.parent for file in states if _is_json(file)]
    newest = max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    if newest is None:
        return None
    shares = len(list(newest.glob("global_step*/*optim_states.pt")))
    if shares not in (0, processes):
        raise TrainError(
            f"{newest}: {shares} processes saved it, each its share of the optimiser; found "
            f"{processes}; train on {shares} again, or start anew with --out DIR"
        )
    return str(newest)


def save(
    trainer: Any, folder: Path, recipe: Recipe, about: dict[str, Any], figures: dict[str, Any]
) -> None:
    """Save weights, tokenizer with chat template and, last, `training.json`, so that any loader
    takes the folder.

    A LoRA adapter that is to be merged is saved in `adapter/`, and the merged model beside it.
    States to resume from are deleted unless `fit.save` is `keep`.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(Path(recipe.model or "").expanduser()))
    end = about.get("end_of_turn")
    _restore(trainer.accelerator.unwrap_model(trainer.model), tokenizer, end)
    if recipe.lora is not None and recipe.lora.merge:
        trainer.save_model(str(folder / "adapter"))  # gathers shards: every process takes part
        if trainer.is_world_process_zero():
            merged = _merged(trainer, folder / "adapter", recipe)
            _restore(merged, tokenizer, end)
            merged.save_pretrained(str(folder))
    else:
        trainer.save_model(str(folder))
    if not trainer.is_world_process_zero():
        return
    tokenizer.save_pretrained(str(folder))
    for name in (CLOCK, "training_args.bin", "adapter/training_args.bin", "adapter/README.md"):
        (folder / name).unlink(missing_ok=True)
    log = [entry for entry in trainer.state.log_history if entry]
    training = {"recipe": recipe.name, **about, **figures, "log": log}
    write_atomic(folder / TRAINING, json.dumps(training, indent=1).encode() + b"\n")
    if recipe.fit.save != "keep":  # after the summary: until then a resume needs them
        for step in folder.glob("checkpoint-*"):
            shutil.rmtree(step, ignore_errors=True)


def _restore(model: Any, tokenizer: Any, end_of_turn: int | None) -> None:
    """Undo what TRL set for training (no cache, a pad token where there was none), and make the
    template's end of turn end a reply wherever the checkpoint is loaded."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    config, generation = model.config.get_text_config(), model.generation_config
    model.config.use_cache = config.use_cache = True
    if tokenizer.pad_token_id is None:
        config.pad_token_id = generation.pad_token_id = None
    ends = generation.eos_token_id
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if end_of_turn is not None and end_of_turn not in ends:
        generation.eos_token_id = [end_of_turn, *ends]


def _merged(trainer: Any, adapter: Path, recipe: Recipe) -> Any:
    """Return the model with its adapter merged; loaded again where it is in shards or quantised."""
    zero3 = trainer.is_deepspeed_enabled and is_deepspeed_zero3_enabled()
    if not (zero3 or trainer.is_fsdp_enabled or getattr(trainer.model, "is_loaded_in_4bit", False)):
        return trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    from peft import PeftModel

    unset_hf_deepspeed_config()  # else loading would shard, and wait for the other processes
    base = load_model(str(recipe.model), torch.bfloat16 if in_bf16(recipe) else torch.float32)
    return PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()


def _device_name() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return "Apple GPU" if torch.backends.mps.is_available() else "CPU"


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except ValueError:
        return False
    return True
