"""Full fine-tuning instead of adapters: all weights are trained on a copy; the base never changes.

Zweiger et al. 2025 (SEAL), second version: continued pre-training. Imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class FullFinetune:
    """A trainable copy of all weights, for one seed.

    They are in `flat` [1, numbers], in float32 whatever the model's own precision, in which passes
    are computed; tied weights stay tied. Memory: four times the model in float32 (weights,
    gradient, two moments).
    """

    def __init__(self, model: Any, seed: int) -> None:
        """Copy the model's weights; the seed only determines the order of the texts."""
        self.seeds = (seed,)
        self.model = model
        base = list(dict.fromkeys(model.parameters()))
        self.flat = torch.empty(1, sum(weight.numel() for weight in base), device=model.device)
        self._leaf: dict[Any, Any] = {}
        at = 0
        for weight in base:
            end = at + weight.numel()
            self.flat[0, at:end] = weight.detach().reshape(-1).float()
            self._leaf[weight] = self.flat[0, at:end].view(weight.shape).requires_grad_()
            at = end

    def loss_gradient(self, loss: Any) -> Any:
        """Return the gradient of a loss, [1, numbers]; 0 for weights that the loss does not use."""
        leaves = list(self._leaf.values())
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(gradients, leaves, strict=True)
        flat = [(torch.zeros_like(b) if a is None else a).reshape(-1) for a, b in pairs]
        return torch.cat(flat)[None]

    @contextmanager
    def apply_to_model(self) -> Iterator[None]:
        """Let the model's modules use the copy during the block. It shadows their weights without
        replacing them, so that twins, which share the weights, are not affected."""
        places = [
            (module, name, weight)
            for module in self.model.modules()
            for name, weight in module.named_parameters(recurse=False)
        ]

        def use_copy(*_: Any) -> None:
            cast = {weight: leaf.to(weight.dtype) for weight, leaf in self._leaf.items()}
            for module, name, weight in places:
                module.__dict__[name] = cast[weight]

        held = self.model.register_forward_pre_hook(use_copy)
        try:
            yield
        finally:
            held.remove()
            for module, name, _ in places:
                module.__dict__.pop(name, None)

    def merge_into(self, model: Any) -> None:
        """Copy the trained weights into `model`, a copy of the base, in place."""
        pairs = zip(dict.fromkeys(model.parameters()), self._leaf.values(), strict=True)
        with torch.no_grad():
            for own, leaf in pairs:
                own.copy_(leaf)
