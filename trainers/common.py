"""What the programs of this folder share: `PROGRAM CHECKPOINT`, options of TRL, resuming, saving.

A program needs the checkpoint's folder alone: `recipe.yaml` and `rows/`, which `convbench train`
wrote. Any launcher starts it: `accelerate launch trainers/weighted_sft.py CHECKPOINT`.
"""

from __future__ import annotations

import contextlib
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
import trl
import trl.trainer.utils
from accelerate.utils import gather_object
from datasets import load_from_disk
from datasets.utils.logging import disable_progress_bar
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
from transformers.integrations import deepspeed
from transformers.utils import logging
from trl.models import prepare_deepspeed, prepare_fsdp

from convbench.errors import ConvbenchError, TrainError
from convbench.learn.launch import ERROR_PREFIX, GUARDED, read_recipe
from convbench.learn.rows import read_about
from convbench.learn.steps import Steps, batches_of
from convbench.learn.tokens import load_tokenizer
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import TRAINING
from convbench.store.jsonl import write_atomic
from convbench.util.guard import die_with_parent

# TRL scores labelled positions only where it has Triton, and every position on a CPU.
trl.trainer.utils._use_triton = lambda device: True


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
    """Return the rows in a folder of a checkpoint's as a `datasets.Dataset`."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    logging.disable_progress_bar()
    disable_progress_bar()
    return load_from_disk(str(folder))


def in_bf16(recipe: Recipe) -> bool:
    """Return whether the training computes in bf16; `auto` does on a GPU that supports it."""
    if recipe.fit.precision == "auto":
        return bool(torch.cuda.is_available() and torch.cuda.is_bf16_supported())
    return recipe.fit.precision == "bf16"


def arguments(folder: Path, recipe: Recipe, rows: int) -> dict[str, Any]:
    """Return the recipe as keyword arguments of a configuration of TRL or transformers."""
    fit, processes = recipe.fit, int(os.environ.get("WORLD_SIZE", "1"))
    size, accumulation = batches_of(fit, processes)
    on_cpu = _device_name() == "CPU"
    return {
        "output_dir": str(folder),
        "learning_rate": fit.learning_rate,
        "num_train_epochs": fit.epochs,
        "max_steps": fit.max_steps or -1,
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        "gradient_checkpointing": fit.gradient_checkpointing,
        "bf16": in_bf16(recipe),
        "use_cpu": on_cpu,
        "seed": fit.seed,
        "data_seed": fit.seed,
        "logging_steps": fit.log_every,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,
        "save_strategy": "no" if fit.save == "end" else "epoch",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": not on_cpu,
        # accelerate would refill a last batch with rows of the first and count these twice
        "dataloader_drop_last": processes > 1 and rows >= processes * size,
        **fit.arguments,
    }


def trl_arguments(folder: Path, recipe: Recipe, rows: int) -> dict[str, Any]:
    """Return the same for a trainer of TRL, which loads the model itself."""
    dtype = "bfloat16" if in_bf16(recipe) and recipe.lora is not None else "float32"
    own = {"max_length": None, "model_init_kwargs": {"dtype": dtype}}
    return own | arguments(folder, recipe, rows)


def adapter_options(recipe: Recipe) -> dict[str, Any]:
    """Return `peft_config` and `quantization_config` of a recipe with LoRA; empty without."""
    if (lora := recipe.lora) is None:
        return {}
    config = trl.ModelConfig(
        use_peft=True,
        lora_r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        lora_target_modules=list(lora.target_modules),
        load_in_4bit=lora.quantize == "4bit",
        dtype="bfloat16",
    )
    options = trl.get_peft_config(config), trl.get_quantization_config(config)
    return dict(zip(("peft_config", "quantization_config"), options, strict=True))


def load_model(path: str, bf16: bool = False) -> Any:
    """Return a model by path or Hub id, in fp32 or bf16. Raise TrainError if it cannot be
    loaded."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
    except (OSError, ValueError) as error:
        raise TrainError(f"model {path!r}: {str(error).splitlines()[0]}") from None


def frozen_model(trainer: Any, path: str, recipe: Recipe) -> Any:
    """Return a model that is not trained, placed beside a trainer's own."""
    model = load_model(path, in_bf16(recipe)).eval().requires_grad_(False)
    trl.trainer.utils.add_fused_lm_head(model)
    if trainer.is_deepspeed_enabled:
        return prepare_deepspeed(model, trainer.accelerator)
    if trainer.is_fsdp_enabled:
        return prepare_fsdp(model, trainer.accelerator)
    return trainer.accelerator.prepare_model(model, evaluation_mode=True)


class Progress(TrainerCallback):
    """Writes a line to stderr for every log entry, of which each epoch and the training end with
    one, and adds to it the seconds since the start, those before a resume included."""

    began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        before = max((entry.get("seconds", 0.0) for entry in state.log_history), default=0.0)
        self.began = time.monotonic() - before

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request a log entry for the last step."""
        control.should_log |= state.global_step >= state.max_steps

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Request one, before the epoch is saved."""
        control.should_log = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Write step and numbers."""
        state.log_history[-1]["seconds"] = round(time.monotonic() - self.began, 3)
        if state.is_world_process_zero and logs:
            numbers = "  ".join(f"{k} {v:.4g}" for k, v in logs.items() if isinstance(v, float))
            print(f"step {state.global_step}/{state.max_steps}  {numbers}", file=sys.stderr)


def train(trainer: Any, folder: Path, recipe: Recipe, **figures: Any) -> None:
    """Train, from the last saved epoch if there is one, and save the checkpoint; `figures` are
    further fields of `training.json`, or functions that return them once it is trained."""
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Progress)
    trainer.create_model_card = lambda *_, **__: None  # `convbench publish` writes it
    about, processes = read_about(folder), trainer.args.world_size
    steps = Steps(len(trainer.train_dataset), about["unit"], recipe.fit, processes)
    if trainer.is_world_process_zero():
        print(steps.line(), file=sys.stderr)
    trainer.train(resume_from_checkpoint=last_epoch(folder, processes))
    figures = {
        "processes": processes,
        "steps": trainer.state.max_steps,
        "rows_left_out": steps.left_out,
        "seconds": trainer.state.log_history[-1]["seconds"],
        "devices": dict(Counter(gather_object([_device_name()]))),
        **{name: value() if callable(value) else value for name, value in figures.items()},
    }
    _save_model(trainer, folder, recipe, about.get("end_of_turn"))
    if trainer.is_world_process_zero():
        log = [entry for entry in trainer.state.log_history if entry]
        training = {"recipe": recipe.name, **about, **figures, "log": log}
        write_atomic(folder / TRAINING, json.dumps(training, indent=1).encode() + b"\n")
        # After the summary: until then a resume needs them.
        for step in folder.glob("checkpoint-*") if recipe.fit.save != "keep" else ():
            shutil.rmtree(step, ignore_errors=True)


def last_epoch(folder: Path, processes: int) -> str | None:
    """Return the newest `checkpoint-STEP` whose state file, which is written last, is complete, or
    None. Raise TrainError if other processes than these share its optimiser (ZeRO)."""
    complete = []
    for file in folder.glob("checkpoint-*/trainer_state.json"):
        with contextlib.suppress(ValueError):
            json.loads(file.read_bytes())
            complete.append(file.parent)
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


def _save_model(trainer: Any, folder: Path, recipe: Recipe, end_of_turn: int | None) -> None:
    """Save weights and tokenizer with chat template, so that any loader takes the folder; an
    adapter that is to be merged in `adapter/`, and the merged model beside it."""
    tokenizer = load_tokenizer(str(recipe.model))
    _restore(trainer.accelerator.unwrap_model(trainer.model), tokenizer, end_of_turn)
    merges = recipe.lora is not None and recipe.lora.merge
    # Gathers shards: every process takes part.
    trainer.save_model(str(folder / "adapter" if merges else folder))
    if not trainer.is_world_process_zero():
        return
    if merges:
        merged = _merged(trainer, folder / "adapter", recipe)
        _restore(merged, tokenizer, end_of_turn)
        merged.save_pretrained(str(folder))
    tokenizer.save_pretrained(str(folder))
    for name in ("training_args.bin", "adapter/training_args.bin", "adapter/README.md"):
        (folder / name).unlink(missing_ok=True)


def _restore(model: Any, tokenizer: Any, end_of_turn: int | None) -> None:
    """Undo what TRL set for training (no cache, a pad token where there was none), and make the
    template's end of turn end a reply wherever the checkpoint is loaded."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    config, generation = model.config.get_text_config(), model.generation_config
    model.config.use_cache = config.use_cache = True
    if tokenizer.pad_token_id is None:
        config.pad_token_id = generation.pad_token_id = None
    ends = generation.eos_token_id
    ends = [ends] if isinstance(ends, int) else list(ends or ())
    if end_of_turn not in (None, *ends):
        generation.eos_token_id = [end_of_turn, *ends]


def _merged(trainer: Any, adapter: Path, recipe: Recipe) -> Any:
    """Return the model with its adapter merged; loaded again where it is in shards or quantised."""
    zero3 = trainer.is_deepspeed_enabled and deepspeed.is_deepspeed_zero3_enabled()
    if not (zero3 or trainer.is_fsdp_enabled or getattr(trainer.model, "is_loaded_in_4bit", False)):
        return trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
    from peft import PeftModel

    deepspeed.unset_hf_deepspeed_config()  # else loading would shard and wait for the others
    base = load_model(str(recipe.model), in_bf16(recipe))
    return PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()


def _device_name() -> str:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return "Apple GPU" if torch.backends.mps.is_available() else "CPU"
