"""Distil a frozen teacher into a student, over the policy's own tokens."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import ModuleList
from torch.nn.functional import cross_entropy, kl_div
from trl import SFTConfig

from convbench.errors import TrainError
from convbench.learn import fitting
from convbench.learn.job import Job, WeightedData, load_rows
from convbench.learn.steps import StepCount
from convbench.learn.weighted_sft import WeightedSFT
from convbench.models.weights_path import check_model
from convbench.schema.recipe import Distil


def distillation_loss(
    student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, settings: Distil
) -> torch.Tensor:
    """Return the loss alpha * CE + (1 - alpha) * T^2 * KL(teacher || student) of every token.

    `student` and `teacher` are logits of shape (tokens, vocabulary), `labels` of shape (tokens,);
    the result has shape (tokens,), float32 for logits in bf16, whose three digits are too few, or
    in float64. Mukherjee et al. (2025), Table 27; Hinton et al. (2015).
    """
    exact = torch.promote_types(teacher.dtype, torch.float32)
    student, teacher = student.to(exact), teacher.to(exact)
    temperature = settings.temperature
    entropy = -student.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
    student_log_probs, teacher_log_probs = (
        (student / temperature).log_softmax(-1),
        (teacher / temperature).log_softmax(-1),
    )
    divergence = kl_div(
        student_log_probs, teacher_log_probs, reduction="none", log_target=True
    ).sum(-1)
    return settings.alpha * entropy + (1 - settings.alpha) * temperature**2 * divergence


GIBBERISH_NATS = 0.5
"""Nats a token: students that started further than this from their teacher stayed far below their
own base on the embedded world (docs/regimes.md)."""


@dataclass(frozen=True, slots=True)
class StudentStart:
    """Cross-entropies of the tokens to learn before the first step, in nats a token over the first
    batch."""

    student: float
    teacher: float
    chance: float
    """That of a uniform guess, the log of the vocabulary's size."""

    @property
    def is_gibberish(self) -> bool:
        """Whether the student's cross-entropy exceeds its teacher's by 0.5 nats a token or more, or
        either is NaN."""
        return not self.student - self.teacher < GIBBERISH_NATS

    def describe(self) -> str:
        """Return the warning about such a student."""
        return (
            f"the student starts near chance: {self.student:.2f} nats per token (teacher "
            f"{self.teacher:.2f}, uniform guess {self.chance:.2f}); a short distillation will not "
            "fix that; keep all layers of the base with --set distil.student_layers=null, or take "
            "another student with --model"
        )

    def record(self) -> dict[str, Any]:
        """Return `student`, `teacher`, `chance` (nats a token) and `gibberish` (bool), as
        `training.json` holds them."""
        return {**asdict(self), "gibberish": self.is_gibberish}


class Distiller(WeightedSFT):
    """WeightedSFT with the distillation loss of each token in place of -log pi."""

    def __init__(self, *, teacher: Any, **options: Any) -> None:
        """`teacher` is a model of the student's vocabulary."""
        super().__init__(**options)
        self.start: StudentStart | None = None
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        """Return this batch's part of the loss, a scalar: (1/N) sum over the policy's tokens, times
        the processes.

        The first batch of a training sets `start`, and prints a warning if the student starts near
        chance. `return_outputs` is ignored.
        """
        settings = self.job.recipe.distil
        assert settings is not None
        chat = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        labels = inputs["labels"][:, 1:]
        on = labels != -100
        logits = model(**chat, use_cache=False).logits[:, :-1]
        with torch.no_grad():
            teacher_logits = self.teacher(**chat, use_cache=False).logits[:, :-1][on]
        if self.start is None and self.state.global_step == 0 and on.any():
            self._record_start(logits[on].detach(), teacher_logits, labels[on])
        token_losses = distillation_loss(logits[on], teacher_logits, labels[on], settings)
        weight = inputs["weight"][:, None].expand_as(labels)[on]
        total = (
            token_losses * weight.to(token_losses.dtype)
        ).sum() + 0.0 * logits.sum()  # 0: an empty batch
        if num_items_in_batch is None:
            num_items_in_batch = self._get_num_items_in_batch([inputs], self.args.device)
        return total / num_items_in_batch.to(total) * self.accelerator.num_processes

    def _record_start(
        self, student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor
    ) -> None:
        """Record the cross-entropies at the start; warn if the student's is near gibberish."""
        student_loss, teacher_loss = (
            cross_entropy(logits.float(), labels).item() for logits in (student, teacher)
        )
        self.start = StudentStart(student_loss, teacher_loss, math.log(student.shape[-1]))
        if self.start.is_gibberish and self.is_world_process_zero():
            print(f"warning: {self.start.describe()}", file=sys.stderr)


def keep_first_layers(model: Any, count: int | None) -> Any:
    """Cut the model to its first `count` layers, in place, and return it; None keeps all.

    Its configuration is changed too. Raise TrainError if it has fewer layers, or no list of them.
    """
    if count is None:
        return model
    inner = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    layers = getattr(inner, "layers", None)
    if not isinstance(layers, ModuleList) or len(layers) < count:
        available = len(layers) if isinstance(layers, ModuleList) else "no list of"
        raise TrainError(
            f"distil.student_layers {count}: the base has {available} layers; expected at least "
            "that many; lower it, or set it to null for all layers"
        )
    inner.layers = layers[:count]
    config = model.config.get_text_config()
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    return model


def fit(job: Job, weighted: WeightedData, teacher: str) -> None:
    """Distil the teacher checkpoint into the recipe's student and save it in the job's folder."""
    fitting.silence_libraries()
    settings = job.recipe.distil
    assert settings is not None
    check_model(teacher)
    rows = load_rows(job, weighted)
    lora = job.recipe.lora if settings.lora_on == "student" else None
    args = fitting.with_cpu_fsdp(  # before the models: by it ZeRO-3 loads the student in shards
        SFTConfig(**fitting.training_arguments(job), dataset_kwargs={"skip_prepare_dataset": True})
    )
    trainer = Distiller(
        rows=rows.rows,
        job=job,
        tokenizer=job.chat.tokenizer,
        teacher=fitting.load_model(job, teacher, trained=False),
        model=keep_first_layers(fitting.load_model(job), settings.student_layers),
        args=args,
        peft_config=fitting.lora_config(lora) if lora else None,
    )
    fitting.run_training(
        trainer, job, StepCount(len(rows.rows), job.recipe.data.unit, job.recipe.fit)
    )
    start = {"start": trainer.start.record()} if trainer.start else {}
    fitting.save_checkpoint(trainer, job, weighted, counts=rows.counts, teacher=teacher, **start)
