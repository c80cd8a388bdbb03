"""The plan of a training step's memory beside the trainer's own step on fake tensors.

python -m tests.bench step_memory
python -m tests.bench.step_memory KIND MODEL [lora] [NAME=VALUE ...]     one cell, with its parts
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from convbench.judge.adaptation.settings import InnerSettings
from convbench.learn.memory import Kind, MemoryParts, StepRows, step_memory
from convbench.models.weights_path import ModelShape, _read_shape
from convbench.schema.recipe import Recipe

MODELS: dict[str, dict[str, Any]] = {
    "135M": {
        "vocab_size": 49_152, "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
        "tie_word_embeddings": True,
    },
    "1B": {
        "vocab_size": 128_256, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
        "tie_word_embeddings": True,
    },
    "8B": {
        "vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "tie_word_embeddings": False,
    },
}  # fmt: skip
"""Shapes of SmolLM2-135M, Llama-3.2-1B and Llama-3.1-8B."""
LORA = {"r": 8, "alpha": 16, "dropout": 0.05}


def shape_named(name: str) -> ModelShape:
    shape = _read_shape(MODELS[name])
    assert shape is not None
    return shape


def random_model(name: str, dtype: Any, **more: Any) -> Any:
    """Return a Llama of a shape, with weights that are not set."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.initialization import no_init_weights

    config = LlamaConfig(**{**MODELS[name], **more}, max_position_embeddings=131_072)
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with no_init_weights():
            model = LlamaForCausalLM(config)
        model.tie_weights()
        return model
    finally:
        torch.set_default_dtype(before)


def recipe_of(kind: Kind, *, lora: bool, rows: int, **fit: Any) -> Recipe:
    values: dict[str, Any] = {"name": "bench", "title": "bench", "trainer": "weighted"}
    values["fit"] = {
        "batch_size": rows, "accumulation": 1, "max_steps": 2, "probe": False, "save": "end",
        "precision": "bf16", "shuffle": False, **fit,
    }  # fmt: skip
    if lora:
        values["lora"] = LORA
    if kind == "distillation":
        values["distil"] = {"lora_on": "student"}
    return Recipe.model_validate(values)


def inner_settings(recipe: Recipe) -> InnerSettings:
    """Return the settings of an adaptation that trains as a recipe says."""
    lora = recipe.lora
    return InnerSettings(
        tuning="lora" if lora else "full", seeds=1, epochs=2, batch_size=recipe.fit.batch_size,
        **({"r": lora.r, "target_modules": lora.target_modules} if lora else {}),
    )  # fmt: skip


def train(kind: Kind, name: str, recipe: Recipe, size: StepRows, folder: Path) -> None:
    """Run the trainer of a kind for its steps."""
    from convbench.learn import fitting
    from tests.learn.tiny import tokenizer

    count = recipe.fit.batch_size * recipe.fit.accumulation * (recipe.fit.max_steps or 1)
    chat = SimpleNamespace(tokenizer=tokenizer())
    job: Any = SimpleNamespace(recipe=recipe, folder=folder, model=name, chat=chat, max_length=None)
    rest = size.tokens - size.labelled

    if kind in ("weighted", "distillation"):
        from trl import SFTConfig

        from convbench.learn.distil import Distiller
        from convbench.learn.rows import TrainingRow
        from convbench.learn.tokens import TokenRow
        from convbench.learn.weighted_sft import weighted_trainer

        rows = [
            TrainingRow(
                str(i), 0, 1,
                TokenRow(
                    (5,) * (size.tokens - i % 2), ((0,) * rest + (1,) * size.labelled)[i % 2 :]
                ), 1.0,
            )
            for i in range(count)
        ]  # fmt: skip
        if kind == "weighted":
            weighted_trainer(job, rows).train()
            return
        settings = fitting.training_arguments(job)
        Distiller(
            rows=rows, job=job, tokenizer=chat.tokenizer, model=fitting.load_model(job),
            teacher=fitting.load_model(job, name, trained=False),
            args=SFTConfig(**settings, dataset_kwargs={"skip_prepare_dataset": True}),
            peft_config=fitting.lora_config(recipe.lora) if recipe.lora else None,
        ).train()  # fmt: skip
    elif kind == "preference":
        from convbench.learn.preference import dpo_trainer
        from convbench.learn.rows import PairRow

        pairs = [
            PairRow(str(i), [5] * rest, [6] * size.labelled, [7] * (size.labelled - 1))
            for i in range(count)
        ]
        dpo_trainer(job, pairs).train()
    elif kind == "critic":
        import torch
        from transformers import TrainingArguments

        from convbench.learn.sweet.critic import CriticTrainer
        from convbench.learn.sweet.pairs import CriticRow, SweetArgs

        model = fitting.load_model(job)
        if recipe.lora is not None:
            from peft import get_peft_model

            model = get_peft_model(model, fitting.lora_config(recipe.lora))
            model.enable_input_require_grads()
        marks = (-1,) * rest + (0,) * size.labelled
        CriticTrainer(
            SweetArgs(),
            [[CriticRow((5,) * (size.tokens - i), marks[i:])] for i in range(2)],
            [torch.zeros(1), torch.zeros(1)],
            0,
            model=model,
            args=TrainingArguments(**fitting.training_arguments(job, trl=False)),
            train_dataset=[(0, 1)] * count,
        ).train()
    else:
        from convbench.judge.adaptation.clock import PassClock
        from convbench.judge.adaptation.fit import fit_adapters
        from convbench.judge.adaptation.full_finetune import FullFinetune
        from convbench.judge.adaptation.lora import MultiSeedLora

        model = fitting.load_model(job, trained=False)
        settings = inner_settings(recipe)
        stack: Any = (
            FullFinetune(model, 0) if recipe.lora is None
            else MultiSeedLora(model, settings, range(settings.seeds))
        )  # fmt: skip
        texts = [[5] * (size.tokens - i % 2) for i in range(count)]
        fit_adapters(model.eval(), stack, texts, settings, PassClock())


def measured(
    kind: Kind, name: str, recipe: Recipe, size: StepRows, folder: Path, **more: Any
) -> Any:
    """Return the counted peak of a training's steps."""
    from transformers import AutoModelForCausalLM

    from tests.bench.fake_memory import Counted, as_on_a_card

    def load(path: str, dtype: Any, **_: Any) -> Any:
        return random_model(name, dtype, **more)

    mode = Counted()
    with ExitStack() as stack:
        stack.enter_context(as_on_a_card())
        stack.enter_context(mock.patch.object(AutoModelForCausalLM, "from_pretrained", load))
        stack.enter_context(mode)
        train(kind, name, recipe, size, folder)
    return mode


def main() -> None:
    kind, name, *rest = sys.argv[1:]
    options: dict[str, Any] = {"rows": 2, "tokens": 2048, "labelled": 512}
    fit: dict[str, Any] = {}
    more: dict[str, Any] = {}
    for word in rest:
        key, sign, value = word.partition("=")
        if sign:
            target = options if key in options else more if key in MODELS["8B"] else fit
            target[key] = json.loads(value)
    pairs = kind in ("preference", "critic")
    size = StepRows(options["rows"], options["tokens"], options["labelled"])
    recipe = recipe_of(kind, lora="lora" in rest, rows=size.rows // (2 if pairs else 1), **fit)
    began = time.monotonic()
    mode = measured(kind, name, recipe, size, Path("/tmp/pa-out"), **more)
    from dataclasses import replace

    shape = _read_shape({**MODELS[name], **more})
    parts = replace(
        step_memory(kind, shape, inner_settings(recipe) if kind == "pretraining" else recipe, size),
        margin=0.0,
    )
    print(
        f"{time.monotonic() - began:.1f} s, peak {mode.peak / 1e9:.3f} GB, plan {parts.total / 1e9:.3f}, ratio {parts.total / mode.peak:.3f}"
    )
    print({k: round(v / 1e9, 3) for k, v in vars(parts).items() if v})
    for (op, what), size_ in mode.at_peak.most_common(40):
        print(f"{size_ / 1e9:9.4f}  {op:40} {what}")


if __name__ == "__main__":
    main()
