"""Measure the variance of the first step's gradient under ReFit's and SWiFt's weights.

Mukherjee et al. 2025 standardise rewards since the gradient of equation (7) has a high variance.
Before the first step the weightings are compared on the same rows. The gradient is that of the
output layer's matrix: it follows from forward passes alone, under any launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import is_peft_model

from convbench.learn.kernels import SCALED_LOGITS
from convbench.learn.rows import TrainingRow

WEIGHTINGS = ("refit", "centred", "swift")
"""Names of the weightings, in the order of their weights: r, r - mean, (r - mean) / std."""
MOST_ROWS = 16
"""Most rows of the step that are measured."""


@dataclass
class GradientSums:
    """Sums over rows that the variance of a weighted gradient follows from.

    Row i's gradient g_i is that of log pi of its labels, a matrix of shape (vocabulary, width).
    """

    rows: int = 0
    tokens: int = 0
    """Labels of these rows."""
    squares: list[float] = field(default_factory=lambda: [0.0] * len(WEIGHTINGS))
    """By weighting the sum of |w_i g_i|^2."""
    totals: list[torch.Tensor] = field(default_factory=list)
    """By weighting the sum of w_i g_i."""

    def add_row(
        self,
        states: torch.Tensor,
        logits: torch.Tensor,
        labels: torch.Tensor,
        weights: Sequence[float],
    ) -> None:
        """Add a row: the states before the output layer, shape (labels, width), its outputs, shape
        (labels, vocabulary), the labels, and the row's weight by weighting."""
        errors = -logits.softmax(-1)
        errors[range(len(labels)), labels] += 1
        square = ((errors @ errors.T) * (states @ states.T)).sum().item()
        gradient = errors.T @ states
        if not self.totals:
            self.totals = [torch.zeros_like(gradient) for _ in WEIGHTINGS]
        for number, weight in enumerate(weights):
            self.squares[number] += weight**2 * square
            self.totals[number] += weight * gradient
        self.rows += 1
        self.tokens += len(labels)

    def training_figures(self) -> dict[str, Any] | None:
        """Return the figures for `training.json`; None for fewer than two rows.

        Each weighting has `variance`, the trace of the covariance of the step's gradient
        sum(w_i g_i) / tokens with rows drawn independently, and `squared_norm`, that gradient's own
        squared length.
        """
        if self.rows < 2:
            return None
        n, scale = self.rows, self.tokens**2
        figures: dict[str, Any] = {"rows": n, "tokens": self.tokens, "layer": "output"}
        for name, squares, total in zip(WEIGHTINGS, self.squares, self.totals, strict=True):
            norm = total.square().sum().item()
            spread = max(0.0, squares - norm / n) * n / (n - 1)
            figures[name] = {"variance": spread / scale, "squared_norm": norm / scale}
        return figures


def measure_gradients(
    trainer: Any, model: Any, rows: Sequence[TrainingRow], weights: Mapping[str, Sequence[float]]
) -> dict[str, Any] | None:
    """Return the figures of these rows with the model as it is, as `training_figures` gives them;
    None if they cannot be computed.

    `weights` has, by conversation, the weight in each weighting; rows of other conversations count
    in neither. Every process must call it with the same rows, since sharded weights need all; those
    with empty `weights` get None. Models with scaled logits are not measured.
    """
    inner = trainer.model.get_base_model() if is_peft_model(trainer.model) else trainer.model
    inner = trainer.accelerator.unwrap_model(inner)
    config = inner.config.get_text_config()
    if any(getattr(config, name, None) is not None for name in SCALED_LOGITS):
        return None
    sums: GradientSums | None = GradientSums()
    states: list[torch.Tensor] = []
    hook = inner.get_output_embeddings().register_forward_hook(
        lambda _, args, output: states.append(args[0])
    )
    training = trainer.model.training
    trainer.model.eval()
    try:
        for row in rows:
            ids = torch.tensor([row.tokens.ids], device=trainer.args.device)
            states.clear()
            with torch.no_grad(), trainer.compute_loss_context_manager():
                logits = model(
                    input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False
                ).logits
            if sums is not None and not row.unrewarded and row.conversation_id in weights:
                where = torch.tensor(row.tokens.mask[1:], dtype=torch.bool, device=ids.device)
                kind = logits.dtype if logits.dtype == torch.float64 else torch.float32
                parts = (states[0][0, :-1][where].to(kind), logits[0, :-1][where].to(kind))
                try:
                    with torch.no_grad():
                        sums.add_row(*parts, ids[0, 1:][where], weights[row.conversation_id])
                except torch.OutOfMemoryError:  # this is no reason to fail; the others go on
                    sums = None
    finally:
        hook.remove()
        trainer.model.train(training)
    return None if sums is None else sums.training_figures()
