"""The plan of a training step's memory beside the trainer's own step on fake tensors.

python -m tests.bench step_memory
python -m tests.bench.step_memory KIND MODEL [lora] [none] [offload] [rows=4] [accumulation=2]
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast, get_args
from unittest import mock

from convbench.judges.adaptation.settings import InnerSettings
from convbench.learn import memory
from convbench.learn.memory import Kind, MemoryParts, StepRows
from convbench.learn.shapes import ModelShape, _read_shape
from convbench.schema.recipe import Recipe
from tests.bench.bench import ROOT, Row

if TYPE_CHECKING:
    from tests.bench.fake_memory import Counted

MODELS: dict[str, dict[str, Any]] = {
    "135M": {
        "vocab_size": 49_152, "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
        "tie_word_embeddings": True,
    },
    "30M": {
        "vocab_size": 16_384, "hidden_size": 512, "num_hidden_layers": 8,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1280,
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
"""Shapes of SmolLM2-135M, Llama-3.2-1B and Llama-3.1-8B, and a Llama of 30 million weights."""
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


def inner_settings(recipe: Recipe, *, offload: bool = False) -> InnerSettings:
    """Return the settings of an adaptation that trains as a recipe says."""
    lora = recipe.lora
    return InnerSettings(
        tuning="lora" if lora else "full", seeds=1, epochs=2, batch_size=recipe.fit.batch_size,
        accumulation=recipe.fit.accumulation, offload="cpu" if offload else "none",
        **({"r": lora.r, "target_modules": lora.target_modules} if lora else {}),
    )  # fmt: skip


def train(
    kind: Kind, name: str, recipe: Recipe, size: StepRows, folder: Path, *, offload: bool = False
) -> None:
    """Run the trainer of a kind for its steps."""
    from convbench.learn import fitting
    from tests.helpers.tiny import tokenizer

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
        from convbench.judges.adaptation.clock import PassClock
        from convbench.judges.adaptation.fit import fit_adapters
        from convbench.judges.adaptation.full_finetune import FullFinetune
        from convbench.judges.adaptation.lora import MultiSeedLora

        model = fitting.load_model(job, trained=False).requires_grad_(False)
        inner = inner_settings(recipe, offload=offload)
        stack: Any = (
            FullFinetune(model, 0, offload=offload) if recipe.lora is None
            else MultiSeedLora(model, inner, range(inner.seeds))
        )  # fmt: skip
        texts = [[5] * (size.tokens - i % 2) for i in range(count)]
        fit_adapters(model.eval(), stack, texts, inner, PassClock())


def counted_peak(
    kind: Kind,
    name: str,
    recipe: Recipe,
    size: StepRows,
    *,
    names: bool = False,
    offload: bool = False,
    **shape: Any,
) -> Counted:
    """Return the count of a training of two steps on fake tensors. `offload`: all weights
    of an adaptation are in host memory."""
    from transformers import AutoModelForCausalLM

    from tests.bench.fake_memory import Counted, as_on_a_card

    def load(path: str, dtype: Any, **_: Any) -> Any:
        return random_model(name, dtype, **shape)

    mode = Counted(names=names, offload=offload)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(as_on_a_card())
        stack.enter_context(mock.patch.object(AutoModelForCausalLM, "from_pretrained", load))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(mode)
        train(kind, name, recipe, size, Path(folder), offload=offload)
    return mode


@dataclass(frozen=True)
class Cell:
    """One training that is counted and planned."""

    kind: Kind
    model: str
    lora: bool
    checkpointing: bool = True
    accumulation: int = 1
    rows: int = 2
    offload: bool = False

    def name(self) -> str:
        """Return its name in a table."""
        more = "" if self.checkpointing or self.kind == "pretraining" else ", no checkpointing"
        more += f", {self.accumulation} batches a step" if self.accumulation > 1 else ""
        more += f", {self.rows} rows" if self.rows != SIZE.rows else ""
        more += ", in host memory" if self.offload else ""
        return f"{self.kind}, {'LoRA' if self.lora else 'full'}, {self.model}{more}"

    def compare(self, *, names: bool = False, **shape: Any) -> tuple[MemoryParts, Counted]:
        """Return (the plan without its margin, the count)."""
        size = replace(SIZE, rows=self.rows)
        rows = size.rows // (2 if self.kind in ("preference", "critic") else 1)
        recipe = recipe_of(
            self.kind, lora=self.lora, rows=rows, accumulation=self.accumulation,
            gradient_checkpointing=self.checkpointing,
        )  # fmt: skip
        dimensions = _read_shape({**MODELS[self.model], **shape})
        assert dimensions is not None
        settings: Any = recipe
        if self.kind == "pretraining":
            settings = inner_settings(recipe, offload=self.offload)
        plan = replace(memory.step_memory(self.kind, dimensions, settings, size), margin=0.0)
        return plan, counted_peak(
            self.kind, self.model, recipe, size, names=names, offload=self.offload, **shape
        )


SIZE = StepRows(2, 2048, 512)
"""The micro-batch of every cell."""
CELLS = [
    *(
        Cell(kind, model, lora)
        for model in ("135M", "8B", "1B")
        for kind in get_args(Kind)
        for lora in (True, False)
    ),
    *(Cell(kind, "135M", lora, False) for kind in get_args(Kind)[:4] for lora in (True, False)),
    *(Cell("weighted", "135M", lora, accumulation=2) for lora in (True, False)),
    *(Cell("pretraining", "8B", lora, accumulation=2, rows=4) for lora in (True, False)),
    *(Cell("pretraining", "8B", False, rows=n, accumulation=n // 2, offload=True) for n in (2, 4)),
]


def step_memory(folder: Path) -> Iterator[Row]:
    """The plan beside the count of every cell, and beside the growth of real processes."""
    for line in child(["tests.bench.step_memory"]):
        what = f"{line['cell']}: plan and count apart ({line['count_gb']:.2f} GB)"
        yield Row(what, 100 * abs(line["ratio"] - 1), "%", 10.0)
    for arguments in REAL:
        yield real_row(child(["tests.bench.step_memory_real", *arguments]))
    for launch in LAUNCHES:
        yield real_row(
            child(["tests.bench.step_memory_real", "--launch", launch, "weighted", "135M"])
        )


REAL = (
    *((kind, "30M") for kind in get_args(Kind)), ("weighted", "30M", "lora"), ("weighted", "135M"),
)  # fmt: skip
"""Real trainings on the CPU."""
LAUNCHES = ("ddp", "zero2", "zero3")
"""Launches of two real processes."""


def real_row(lines: list[dict[str, Any]]) -> Row:
    """Return the row of one training: the process whose growth is furthest from the plan."""
    line = max(lines, key=lambda each: abs(each["ratio"] - 1))
    what = f"{line['cell']}: plan and growth apart ({line['grown_mb']} MB)"
    return Row(what, 100 * abs(line["ratio"] - 1), "%", 15.0)


def child(arguments: list[str]) -> list[dict[str, Any]]:
    """Run a module in a process of its own; return its lines of JSON."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **GIVE_BACK}, cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{arguments}: {done.stderr[-800:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""Lets the C library give freed tensors back to the system at once. Without it a process grows by a
fifth more: the margin of a plan for the CPU."""


def main() -> None:
    """Print one line of JSON for each cell (`quick`: of the smallest shape, with four layers), or
    what is largest at the peak of one."""
    if len(sys.argv) > 2:
        kind, name, *rest = sys.argv[1:]
        numbers: dict[str, Any] = {
            k: int(v) for k, v in (more.split("=") for more in rest if "=" in more)
        }
        one = Cell(
            cast("Kind", kind), name, "lora" in rest, "none" not in rest,
            offload="offload" in rest, **numbers,
        )  # fmt: skip
        plan, count = one.compare(names=True)
        print(f"{one.name()}: {plan.total / 1e9:.3f} GB, counted {count.peak / 1e9:.3f}")
        print(f"host {plan.host / 1e9:.3f} GB, counted {count.host_peak / 1e9:.3f}")
        for (op, what), size in count.at_peak.most_common(40):
            print(f"{size / 1e9:9.4f}  {op:40} {what}")
        return
    quick = sys.argv[1:] == ["quick"]
    for cell in CELLS[:10] if quick else CELLS:
        began = time.monotonic()
        shape: dict[str, Any] = {"num_hidden_layers": 4} if quick else {}
        plan, count = cell.compare(**shape)
        print(json.dumps({
            "cell": cell.name(), "plan_gb": round(plan.total / 1e9, 3),
            "count_gb": round(count.peak / 1e9, 3), "ratio": round(plan.total / count.peak, 3),
            **({"host_gb": [round(plan.host / 1e9, 3), round(count.host_peak / 1e9, 3)]}
               if cell.offload else {}),
            "seconds": round(time.monotonic() - began, 1),
        }), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
