"""TRL's SFTTrainer with the weights of the rows that `export --to trl` writes.

    from convbench.formats.trl import WeightedSFTTrainer

    trainer = WeightedSFTTrainer(model, SFTConfig(assistant_only_loss=True), train_dataset=rows)

Step loss = (1/N) sum over rows of w times the sum over their learnt tokens of -log pi, where N
counts the learnt tokens of the whole step, those of weight 0 included: equation (5) of Mukherjee et
al. 2025, and with all weights 1 SFTTrainer's own. Needs TRL and torch; nothing of convbench imports
it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from trl import SFTTrainer

WEIGHT = "weight"


class WeightedCollator:
    """Wraps a collator and adds the rows' `weight`, of shape (rows,), to its batch."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the batch. Raises ValueError for a row whose weight is no finite number."""
        weights = [row.get(WEIGHT) for row in rows]
        for weight in weights:
            if not isinstance(weight, int | float) or not math.isfinite(weight):
                raise ValueError(
                    f"{WEIGHT}: found {weight!r}; expected a finite number in each row"
                )
        batch = self.inner([{k: v for k, v in row.items() if k != WEIGHT} for row in rows])
        return {**batch, WEIGHT: torch.tensor(weights, dtype=torch.float32)}


class WeightedSFTTrainer(SFTTrainer):
    """SFTTrainer that multiplies each row's loss by its column `weight`.

    A negative weight pushes a row's tokens away, without bound the longer it is trained; the
    export leaves such rows out. Raises ValueError if rows are packed, since a packed row has no
    single weight, and for another loss than `nll`.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        self.data_collator: Any
        self._signature_columns: list[str]
        super().__init__(*args, **more)
        config = self.args
        if config.packing or config.padding_free:
            raise ValueError(
                "packing or padding_free: found True; expected False: rows have weights"
            )
        if config.loss_type != "nll" or self.compute_loss_func is not None:
            raise ValueError(
                f"loss_type: found {config.loss_type!r} or a loss of your own; expected nll"
            )
        self.data_collator = WeightedCollator(self.data_collator)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if WEIGHT not in self._signature_columns:
            self._signature_columns = [*self._signature_columns, WEIGHT]

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the weighted loss, a scalar tensor; with `return_outputs` (loss, the model's
        outputs).

        It is divided by `num_items_in_batch`, or if that is None by the number of learnt tokens of
        this batch, at least 1. `weight` is removed from `inputs`.
        """
        weight = inputs.pop(WEIGHT)
        labels = inputs["labels"]
        outputs = model(**{k: v for k, v in inputs.items() if k != "labels"}, use_cache=False)
        taught = labels[:, 1:]
        learnt = taught.ne(-100)
        scores = outputs.logits[:, :-1].float().log_softmax(-1)
        log_probs = scores.gather(-1, taught.clamp(min=0)[..., None])[..., 0] * learnt
        count = learnt.sum() if num_items_in_batch is None else num_items_in_batch
        loss = -(weight.to(log_probs.device) * log_probs.sum(-1)).sum() / torch.as_tensor(
            count
        ).clamp(min=1)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss
