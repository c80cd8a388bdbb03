"""log pi of the labels on a CPU: the head is computed at labelled tokens alone, in parts.

TRL's fused head scores every position where there is no Triton and multiplies in float32 going
back: on a CPU that is a third of a training step.
"""

from __future__ import annotations

import functools
from types import MethodType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from trl.trainer.utils import FusedCausalLMOutput

PART = 256
"""Tokens whose logits are there at once; going back they are computed again."""
SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier",
          "logits_scaling")  # fmt: skip
"""What a configuration has where logits are more than the head's product; TRL knows each."""


def score_labels_alone(model: Any) -> None:
    """Have `model(..., fused_lm_head=True)` give log-probabilities of the labels, shape (rows,
    tokens - 1) and 0 where masked, as TRL's `add_fused_lm_head` did before. Nothing is changed for
    a model whose logits are scaled."""
    config = model.config.get_text_config()
    if any(getattr(config, name, None) is not None for name in SCALED):
        return
    before = model.forward

    @functools.wraps(type(model).forward)
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **named: Any) -> Any:
        if not fused_lm_head:
            return before(*args, **named)
        labels = named.pop("labels")[:, 1:]
        hidden = self.base_model(*args, **named).last_hidden_state[:, :-1]
        mask = labels != -100
        picked = _log_probs(self.get_output_embeddings(), hidden[mask], labels[mask])
        # connected to the model even where no label is left
        return FusedCausalLMOutput(
            log_probs=picked.new_zeros(mask.shape).masked_scatter(mask, picked)
        )

    model.forward = MethodType(forward, model)


def _log_probs(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return log pi of each label, shape (tokens,)."""
    parts = [
        checkpoint(_part, head, some, wanted, use_reentrant=False)
        for some, wanted in zip(hidden.split(PART), labels.split(PART), strict=True)
    ]
    return torch.cat(parts)


def _part(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = head(hidden).float()
    return logits.gather(-1, labels[:, None])[:, 0] - logits.logsumexp(-1)
