"""log pi of the labels on a CPU: the head is computed at labelled tokens alone, in parts.

TRL's fused head scores every position where there is no Triton and multiplies in float32 going
back: on a CPU that is a third of a training step, and in float64 it costs the gradient its digits.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from accelerate.utils import is_peft_model
from torch.utils.checkpoint import checkpoint
from trl.trainer.utils import FusedCausalLMOutput

from convbench.learn.fitting import on_cpu
from convbench.learn.losses import anchors

PART = 256
"""Tokens whose logits are there at once; going back they are computed again."""
SCALED = ("final_logit_softcapping", "logit_scale", "output_multiplier", "lm_head_multiplier",
          "logits_scaling")  # fmt: skip
"""What a configuration has where logits are more than the head's product; TRL knows each."""


def lighten(trainer: Any) -> None:
    """Have one of TRL's trainers of preferences score labels alone where it trains on a CPU, with
    its policy and what this is compared to."""
    if not on_cpu():
        return
    policy = trainer.model
    score_labels_alone(policy.get_base_model() if is_peft_model(policy) else policy, looks=True)
    if trainer.ref_model is not None:  # under DeepSpeed it stands in an engine already
        score_labels_alone(trainer.accelerator.unwrap_model(trainer.ref_model))


@dataclass(frozen=True)
class Beside:
    """What a policy's distributions are held against, at the labels alone."""

    kind: str
    """The divergence, as `anchors.divergence` names it."""
    hidden: torch.Tensor
    """The other model's last hidden states there, shape (labels, width)."""
    head: Any


@dataclass
class Scored(FusedCausalLMOutput):
    """TRL's output, and the divergence from another model."""

    divergence: torch.Tensor | None = None


def hidden_at(model: Any, inputs: Mapping[str, Any]) -> torch.Tensor:
    """Return the last hidden states before the labels, shape (labels, width)."""
    rest = {name: value for name, value in inputs.items() if name != "labels"}
    found = model.base_model(**rest, use_cache=False).last_hidden_state[:, :-1]
    return found[inputs["labels"][:, 1:] != -100]


def score_labels_alone(model: Any, *, looks: bool = False) -> bool:
    """Have `model(..., fused_lm_head=True)` give log-probabilities of the labels, shape (rows,
    tokens - 1) and 0 where masked, as TRL's `add_fused_lm_head` did before; with `looks` what its
    trainers of preferences log, too, in the same shape and without a gradient: each prediction's
    entropy in nats, the mean of its logits, and whether the label was its likeliest token. A call
    with `beside` (`Beside`) gives the divergence at each label, too. Return whether it does:
    nothing is changed for a model whose logits are scaled."""
    config = model.config.get_text_config()
    if any(getattr(config, name, None) is not None for name in SCALED):
        return False
    before = model.forward

    @functools.wraps(type(model).forward)
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **named: Any) -> Any:
        if not fused_lm_head:
            return before(*args, **named)
        labels, beside = named.pop("labels")[:, 1:], named.pop("beside", None)
        hidden = self.base_model(*args, **named).last_hidden_state[:, :-1]
        mask = labels != -100
        hidden, labels = hidden[mask], labels[mask]
        head = self.get_output_embeddings()
        picked, apart = _log_probs(head, hidden, labels, beside)
        logged = looks and not _bare(self)  # of the policy, not of what it is compared to
        seen = _looked_at(head, hidden.detach(), labels) if logged else {}
        # connected to the model even where no label is left
        return Scored(**{
            name: values.new_zeros(mask.shape).masked_scatter(mask, values)
            for name, values in {"log_probs": picked, **apart, **seen}.items()
        })  # fmt: skip

    model.forward = MethodType(forward, model)
    return True


def _bare(model: Any) -> bool:
    """Return whether a model with adapters speaks without them just now."""
    return any(getattr(part, "disable_adapters", False) is True for part in model.modules())


def _log_probs(
    head: Any, hidden: torch.Tensor, labels: torch.Tensor, beside: Beside | None
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return log pi of each label, shape (tokens,), and the divergence there, where one is asked
    for."""
    parts = [hidden.split(PART), labels.split(PART)]
    if beside is None:
        found = [
            checkpoint(_part, head, *some, use_reentrant=False) for some in zip(*parts, strict=True)
        ]
        return torch.cat(found), {}
    both = [
        checkpoint(_part_beside, head, *some, beside.head, beside.kind, use_reentrant=False)
        for some in zip(*parts, beside.hidden.split(PART), strict=True)
    ]
    picked, apart = (torch.cat(values) for values in zip(*both, strict=True))
    return picked, {"divergence": apart}


def _looked_at(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return what is logged of each label's prediction, each of shape (tokens,)."""
    found = []
    with torch.no_grad():
        for some, wanted in zip(hidden.split(PART), labels.split(PART), strict=True):
            logits = _logits(head, some)
            likely = logits.log_softmax(-1)
            entropy = -(likely.exp() * likely).sum(-1)
            found.append((entropy, logits.mean(-1), logits.argmax(-1) == wanted))
    entropies, mean, top = (torch.cat(parts) for parts in zip(*found, strict=True))
    return {"entropy": entropies, "mean_logits": mean, "is_top1": top}


def _part(head: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _picked(_logits(head, hidden), labels)


def _part_beside(
    head: Any, hidden: torch.Tensor, labels: torch.Tensor, then: torch.Tensor, other: Any, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = _logits(head, hidden)
    with torch.no_grad():
        before = _logits(other, then)
    return _picked(logits, labels), anchors.divergence(kind, logits, before)


def _picked(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return logits.gather(-1, labels[:, None])[:, 0] - logits.logsumexp(-1)


def _logits(head: Any, hidden: torch.Tensor) -> torch.Tensor:
    """Return the logits in float32, and in float64 where the model is."""
    logits = head(hidden)
    return logits if logits.dtype == torch.float64 else logits.float()
