"""Linear layers by oneDNN, in float32 on a CPU: on some processors it is more than twice as fast as
torch's own choice, MKL (260 to 109 GFLOP/s on a core of an AMD EPYC with AVX-512), and as exact."""

from __future__ import annotations

from typing import Any

import torch


class Packed(torch.nn.Module):  # type: ignore[misc]
    """A linear layer without gradients. Its weights lie in oneDNN's own order; those that another
    layer has too (tied embeddings) stay as they are, which costs some speed and no memory."""

    def __init__(self, linear: torch.nn.Linear, *, tied: bool) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.packed = weight if tied else torch.ops.mkldnn._reorder_linear_weight(weight)
        self.bias = linear.bias

    def forward(self, given: Any) -> Any:
        """Return `given` [..., in] times the weights: [..., out]."""
        return torch.ops.mkldnn._linear_pointwise(given, self.packed, self.bias, "none", [], "")


def pack(model: Any) -> None:
    """Replace the model's float32 linear layers, one after the other; nothing is done where torch
    has no oneDNN.

    What stays is copied out of the mapped file of weights, so that the file's pages, of which most
    were copied into oneDNN's order, need not be there as well.
    """
    if not torch.backends.mkldnn.is_available():
        return
    for weight in model.parameters():
        if weight.dim() != 2 or weight is model.get_input_embeddings().weight:
            weight.data = weight.data.clone()
    shared = model.get_input_embeddings().weight
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Linear and child.weight.dtype == torch.float32:
                setattr(parent, name, Packed(child, tied=child.weight is shared))
