"""Full fine-tuning instead of adapters: all weights are trained on a copy; the base never changes.

Zweiger et al. 2025 (SEAL), second version: continued pre-training. Imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from convbench.judges.adaptation.settings import InnerSettings

DEVICE_BYTES = 26
"""Most bytes a weight that a training on the device takes beside the base: the float32 weights and
their copy for the passes (6), two moments (8), three gradients (12)."""


class FullFinetune:
    """A trainable copy of all weights, for one seed.

    They are in `flat` [1, numbers], in float32 whatever the model's own precision, in which passes
    are computed; tied weights stay tied. With `offload`, `flat` and its gradient (and therefore
    AdamW's moments) are in host memory, and the device has a copy in the model's precision.
    """

    def __init__(self, model: Any, seed: int, *, offload: bool = False) -> None:
        """Copy the model's weights; the seed only determines the order of the texts."""
        self.seeds = (seed,)
        self.model = model
        self.offload = offload
        base = list(dict.fromkeys(model.parameters()))
        device = "cpu" if offload else model.device
        self.flat = torch.empty(1, sum(weight.numel() for weight in base), device=device)
        self._slices: dict[Any, Any] = {}
        at = 0
        for weight in base:
            end = at + weight.numel()
            self.flat[0, at:end] = weight.detach().reshape(-1).float()
            self._slices[weight] = self.flat[0, at:end].view(weight.shape)
            at = end
        self._leaves = {
            weight: (torch.empty_like(weight) if offload else part).requires_grad_()
            for weight, part in self._slices.items()
        }
        self._copied_version: int | None = None

    def loss_gradient(self, loss: Any) -> Any:
        """Return the gradient of a loss, [1, numbers] like `flat`; 0 for weights that the loss does
        not use."""
        leaves = list(self._leaves.values())
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        pairs = zip(gradients, leaves, strict=True)
        parts = [(torch.zeros_like(b) if a is None else a).reshape(-1) for a, b in pairs]
        if not self.offload:
            return torch.cat(parts)[None]
        flat = torch.empty_like(self.flat)
        for own, part in zip(flat[0].split([len(part) for part in parts]), parts, strict=True):
            own.copy_(part)
        return flat

    def _weights_in_use(self) -> dict[Any, Any]:
        """Return the copy in the model's precision, by the base's weights; an offloaded one is sent
        to the device once a step."""
        if not self.offload:
            return {weight: leaf.to(weight.dtype) for weight, leaf in self._leaves.items()}
        if self._copied_version != self.flat._version:
            with torch.no_grad():
                for weight, part in self._slices.items():
                    self._leaves[weight].copy_(part)
            self._copied_version = self.flat._version
        return self._leaves

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
            cast = self._weights_in_use()
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
        pairs = zip(dict.fromkeys(model.parameters()), self._slices.values(), strict=True)
        with torch.no_grad():
            for own, part in pairs:
                own.copy_(part)


def is_offloaded(model: Any, inner: InnerSettings) -> bool:
    """Whether a full training of the model is in host memory: as the settings say, or if a card has
    too little free memory for it."""
    if inner.offload != "auto" or model.device.type != "cuda":
        return inner.offload == "cpu"
    free, _ = torch.cuda.mem_get_info(model.device)
    count = sum(weight.numel() for weight in model.parameters())
    return bool(DEVICE_BYTES * count > free)
