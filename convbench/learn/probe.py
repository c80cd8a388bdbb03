"""Follow how far a policy moves on its first batch, log(pi / pi_0) through training, and measure
the variance of the first step's gradient.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from convbench.learn.gradient_variance import MOST_ROWS, measure_gradients
from convbench.store.jsonl import write_atomic


class Probe:
    """The first batch of each process, on which log(pi / pi_0) is measured through training.

    log pi_0 is a by-product of that batch's own training step, before which no weight has changed.
    It is stored in the folder, so that a resumed training compares with the same values.
    """

    def __init__(self, trainer: Any) -> None:
        """`trainer` is a `WeightedSFT`."""
        self.trainer = trainer
        size, rank = trainer.args.per_device_train_batch_size, trainer.args.process_index
        first = list(trainer._get_train_sampler())[rank * size : (rank + 1) * size]
        self.batch = trainer.data_collator([trainer.train_dataset[i] for i in first])
        self.real = sum(i < len(trainer.rows) for i in first)
        self.file = Path(trainer.args.output_dir) / f"probe-{rank}.json"
        self.base: torch.Tensor | None = None
        self.weights: Mapping[str, Sequence[float]] | None = None
        """By conversation its weight in each weighting, of which `gradient` is measured; empty in
        processes after the first, None to measure nothing."""
        self.gradient: dict[str, Any] | None = None
        """Variance of the first step's gradient, as `training.json` holds it."""

    def record_gradient(self, model: Any) -> None:
        """Measure the variance of the gradient before the first step, and write it to the folder;
        after a resume read it from there. Later calls do nothing. Every process must call it."""
        weights, self.weights = self.weights, None
        if weights is None:
            return
        trainer = self.trainer
        file = self.file.with_name("probe-gradient.json")
        if trainer.state.global_step > 0:
            self.gradient = json.loads(file.read_text()) if file.exists() else None
            return
        args = trainer.args
        step = args.world_size * args.per_device_train_batch_size * args.gradient_accumulation_steps
        order = list(trainer._get_train_sampler())[: min(step, MOST_ROWS)]
        rows = [trainer.rows[i] for i in order if i < len(trainer.rows)]
        self.gradient = measure_gradients(trainer, model, rows, weights)
        if trainer.is_world_process_zero():
            write_atomic(file, json.dumps(self.gradient).encode())

    def record_start(self, inputs: dict[str, Any], log_probs: torch.Tensor) -> None:
        """Keep log pi_0 of the probe's rows at the first training step, and write it to the folder.

        After a resume read it from there. Later calls do nothing. If the step's batch is not the
        probe's, or the file is missing, these rows do not count in the mean.
        """
        if self.base is not None:
            return
        if self.trainer.state.global_step > 0:
            stored = json.loads(self.file.read_text()) if self.file.exists() else []
            self.base = torch.tensor(stored, dtype=torch.float64)
            return
        same = torch.equal(inputs["input_ids"].cpu(), self.batch["input_ids"])
        rows = log_probs.sum(-1).cpu().double()
        self.base = rows if same else torch.tensor([], dtype=torch.float64)
        write_atomic(self.file, json.dumps(self.base.tolist()).encode())

    def mean_log_ratio(self) -> float | None:
        """Return the mean of log pi - log pi_0 over all processes' rows, in nats a row; None
        without log pi_0.

        Every process must call it, since sharded weights need all.
        """
        trainer = self.trainer
        if self.base is None:
            return None
        log_probs = self._current_log_probs()
        known = len(self.base) == len(log_probs)
        change = (log_probs - self.base).sum().item() if known else 0.0
        sums = torch.tensor([change, float(self.real if known else 0)])
        total = trainer.accelerator.reduce(sums.to(trainer.args.device), "sum").tolist()
        return total[0] / total[1] if total[1] else None

    def _current_log_probs(self) -> torch.Tensor:
        """Return log pi of every row of the batch, shape (rows,)."""
        trainer = self.trainer
        training = trainer.model.training
        names = ("input_ids", "attention_mask", "labels")
        inputs = {name: self.batch[name].to(trainer.args.device) for name in names}
        trainer.model.eval()
        with torch.no_grad(), trainer.compute_loss_context_manager():
            log_probs = trainer.log_probs(trainer.model, inputs).sum(-1).cpu().double()
        trainer.model.train(training)
        return log_probs
