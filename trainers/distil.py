"""Distillation of a frozen teacher into a student, over the policy's own tokens: STaR-GATE-D.

    L = (1/N) sum_t alpha CE + (1 - alpha) T^2 KL(teacher || student)

at the weighted tokens of the rows, alpha and T of `distil`: Table 27 of Mukherjee et al. (NeurIPS
2025); Hinton et al. (2015). TRL's own DistillationTrainer samples anew and has no CE term.

    accelerate launch trainers/distil.py CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import kl_div

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a program finds its neighbours

from convbench.errors import TrainError
from convbench.schema.recipe import Distil, Recipe
from trainers.common import frozen_model, load_model, main, train
from trainers.weighted_sft import WeightedSFT, labelled_logits, make_trainer


def distillation_losses(
    student: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor, settings: Distil
) -> torch.Tensor:
    """Return the loss of every token, from logits of shape (tokens, vocabulary)."""
    heat = settings.temperature
    entropy = -student.log_softmax(-1).gather(-1, labels[:, None])[:, 0]
    divergence = kl_div(
        (student / heat).log_softmax(-1),
        (teacher / heat).log_softmax(-1),
        reduction="none",
        log_target=True,
    ).sum(-1)
    return settings.alpha * entropy + (1 - settings.alpha) * heat**2 * divergence


class Distiller(WeightedSFT):
    """WeightedSFT with the distillation loss of each token in place of -log pi."""

    def __init__(self, recipe: Recipe, *, model: str, args: Any, **options: Any) -> None:
        """`recipe.distil.teacher` is a checkpoint of the student's vocabulary."""
        assert recipe.distil is not None
        assert recipe.distil.teacher is not None
        args.model_init_kwargs = None  # the student is loaded here, to be cut to its first layers
        student = keep_first_layers(load_model(model), recipe.distil.student_layers)
        super().__init__(recipe, model=student, args=args, **options)
        self.distil = recipe.distil
        self.teacher = frozen_model(self, recipe.distil.teacher, recipe)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return this batch's part of the step's loss, a scalar; `return_outputs` is ignored."""
        inputs = dict(inputs)
        labels = inputs["labels"][:, 1:]
        weights: torch.Tensor = inputs.pop("weights")[:, 1:]
        student = labelled_logits(model, inputs)
        with torch.no_grad():
            teacher = labelled_logits(self.teacher, inputs)
        is_label = labels != -100
        losses = distillation_losses(student, teacher, labels[is_label], self.distil)
        total = (losses * weights[is_label]).sum()
        return total / num_items_in_batch * self.accelerator.num_processes


def keep_first_layers(model: Any, count: int | None) -> Any:
    """Cut the model, and its configuration, to its first `count` layers and return it; None keeps
    all. Raise TrainError if it has fewer layers, or no list of them."""
    if count is None:
        return model
    inner, config = model.get_decoder(), model.config.get_text_config()
    layers = getattr(inner, "layers", ())
    if len(layers) < count:
        raise TrainError(
            f"distil.student_layers {count}: the base has {len(layers)} layers; expected at least "
            "that many; lower it, or set it to null for all layers"
        )
    inner.layers = layers[:count]
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    return model


def run(folder: Path, recipe: Recipe) -> None:
    """Distil the teacher into the student and save the checkpoint in the folder."""
    assert recipe.distil is not None
    trainer = make_trainer(folder, recipe, Distiller)
    train(trainer, folder, recipe, teacher=recipe.distil.teacher)


if __name__ == "__main__":
    main(run)
