"""Load tokenizers and weights with transformers: LoRA folders merged into their base, and float32
linear layers on a CPU computed by oneDNN, 1.7 times as fast for a model of 135 million weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from convbench.errors import MissingDependency
from convbench.models.weights_path import adapter_base
from convbench.util.install import with_extra


class PackedLinear(torch.nn.Module):  # type: ignore[misc]
    """A linear layer without gradients, its weights in oneDNN's own order. Weights shared with
    another layer (tied embeddings) stay as they are, which costs some speed but no memory."""

    def __init__(self, linear: torch.nn.Linear, *, tied: bool) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.packed = weight if tied else torch.ops.mkldnn._reorder_linear_weight(weight)
        self.bias = linear.bias

    def forward(self, inputs: Any) -> Any:
        """Return inputs [..., in] times the weights, plus the bias: [..., out]."""
        return torch.ops.mkldnn._linear_pointwise(inputs, self.packed, self.bias, "none", [], "")


def pack_linear_layers(model: Any) -> None:
    """Replace the model's float32 linear layers by oneDNN layers, in place; do nothing without
    oneDNN.

    The other weights are copied out of the mapped file, so that its pages, most of which were
    copied into oneDNN's order, need not stay in memory as well.
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
                setattr(parent, name, PackedLinear(child, tied=child.weight is shared))


SMALL = 20_000_000
"""Weights below which one thread is faster: several spend their time waiting for each other, all
the more on a machine that has other work."""


def load_tokenizer(path: str) -> Any:
    """Return the tokenizer of a folder or Hub id; of its base model if it is an adapter without
    one.

    Raise ValueError if it has no chat template, OSError if there is none.
    """
    base = adapter_base(path)
    own = base is None or (Path(path) / "tokenizer_config.json").is_file()
    tokenizer = AutoTokenizer.from_pretrained(path if own else base)
    if not tokenizer.chat_template:
        raise ValueError("its tokenizer has no chat template; expected an instruct model")
    return tokenizer


def load_model(path: str, device: str | None = None, *, trains: bool = False) -> Any:
    """Return the model in evaluation mode: on CUDA (bfloat16) if available, else on the CPU
    (float32).

    `device` chooses. An adapter is merged into its base. On the CPU a model below 20 million
    weights sets torch to one thread; a larger one gets oneDNN layers, which have no gradients,
    unless `trains`. Raise MissingDependency for an adapter without peft.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    base = adapter_base(path)
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype=dtype, attn_implementation="sdpa"
    )
    if base is not None:
        try:
            from peft import PeftModel
        except ImportError:
            raise MissingDependency(
                "peft", needed_for=f"the adapter {path}", install=with_extra("train")
            ) from None
        model = PeftModel.from_pretrained(model, path).merge_and_unload()
    model = model.to(device).eval()
    if device == "cpu" and model.num_parameters() < SMALL:
        torch.set_num_threads(1)
    elif device == "cpu" and not trains:
        pack_linear_layers(model)
    return model
