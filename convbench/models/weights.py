"""Load tokenizers and weights with transformers, LoRA folders merged into their base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from convbench.models.weights_path import adapter_base

SMALL = 20_000_000
"""Weights below which one thread is faster: several spend their time waiting for each other, all
the more on a machine that has other work."""


class PackedLinear(torch.nn.Module):  # type: ignore[misc]
    """A float32 layer without gradients, its weights in oneDNN's own order: a model of 135 million
    weights samples 1.7 times as fast on a CPU."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())
        self.bias = linear.bias

    def forward(self, inputs: Any) -> Any:
        """Return inputs [..., in] times the weights, plus the bias: [..., out]."""
        return torch.ops.mkldnn._linear_pointwise(inputs, self.packed, self.bias, "none", [], "")


def load_tokenizer(path: str) -> Any:
    """Return the tokenizer of a folder or Hub id, of an adapter's base if it has none. Raise
    ValueError if it has no chat template, OSError if there is none."""
    base = adapter_base(path)
    own = base is None or (Path(path) / "tokenizer_config.json").is_file()
    tokenizer = AutoTokenizer.from_pretrained(path if own else base)
    if not tokenizer.chat_template:
        raise ValueError("its tokenizer has no chat template; expected an instruct model")
    return tokenizer


def load_model(path: str, device: str | None = None, *, trains: bool = False) -> Any:
    """Return the model in evaluation mode, on CUDA in bfloat16, else on the CPU in float32; by
    default on CUDA if it is available. On the CPU a model below 20 million weights sets torch to
    one thread; a larger one gets oneDNN's layers, which have no gradients, unless it `trains`."""
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    base = adapter_base(path)
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        base or path, dtype=dtype, attn_implementation="sdpa"
    )
    if base is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path).merge_and_unload()
    model = model.to(device).eval()
    if device == "cpu" and model.num_parameters() < SMALL:
        torch.set_num_threads(1)
    elif device == "cpu" and not trains and torch.backends.mkldnn.is_available():
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is torch.nn.Linear:
                    setattr(parent, name, PackedLinear(child))
        for weight in model.parameters():  # no longer pages of the mapped file, which may go
            weight.data = weight.data.clone()
    return model
