"""LoRA adapters of several seeds trained in one batch, added by hooks; the base never changes.

A batch has the rows of the seeds one after the other, [seeds * rows, tokens]; each seed's rows go
through its own adapter. Imports torch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from convbench.errors import TrainError
from convbench.judges.adaptation.settings import InnerSettings


class MultiSeedLora:
    """The adapters of one edit for all seeds. All parameters are in `flat` [seeds, numbers]; the
    matrices are views of it, A [seeds, in, r] and B [seeds, r, out]."""

    def __init__(self, model: Any, inner: InnerSettings, seeds: Sequence[int]) -> None:
        """Initialise A as peft does (uniform within 1/sqrt(in)), by each seed alone, and B to 0."""
        self.seeds = tuple(seeds)
        self.scale = inner.alpha / inner.r
        self.layers = target_layers(model, inner.target_modules)
        shapes = [layer_shape(module) for _, module in self.layers]
        total = sum(inner.r * (wide + high) for wide, high in shapes)
        device = model.device
        self.flat = torch.zeros(len(self.seeds), total, device=device)
        self.pairs: list[tuple[Any, Any]] = []
        at = 0
        for wide, high in shapes:
            first, at = self._matrix_view(at, wide, inner.r)
            second, at = self._matrix_view(at, inner.r, high)
            self.pairs.append((first, second))
        for row, seed in enumerate(self.seeds):
            stream = torch.Generator().manual_seed(seed)
            for (first, _), (wide, _) in zip(self.pairs, shapes, strict=True):
                start = torch.rand(wide, inner.r, generator=stream) * 2 - 1
                first.data[row] = (start / wide**0.5).to(device)

    def _matrix_view(self, at: int, rows: int, columns: int) -> tuple[Any, int]:
        """Return (the matrices [seeds, rows, columns] at an offset of `flat`, the next offset)."""
        end = at + rows * columns
        size = (len(self.seeds), rows, columns)
        return self.flat[:, at:end].view(size).requires_grad_(), end

    def loss_gradient(self, loss: Any) -> Any:
        """Return the gradient of a loss, [seeds, numbers]."""
        leaves = [leaf for pair in self.pairs for leaf in pair]
        gradients = torch.autograd.grad(loss, leaves)
        return torch.cat([gradient.reshape(len(self.seeds), -1) for gradient in gradients], dim=1)

    @contextmanager
    def apply_to_model(self) -> Iterator[None]:
        """Add the adapters to the model's layers during the block."""
        held = [
            module.register_forward_hook(self._layer_hook(*pair))
            for (_, module), pair in zip(self.layers, self.pairs, strict=True)
        ]
        try:
            yield
        finally:
            for handle in held:
                handle.remove()

    def _layer_hook(self, first: Any, second: Any) -> Any:
        """Return a forward hook that adds scale * x A B to a layer's output."""
        seeds, scale = len(self.seeds), self.scale

        def add_update(module: Any, inputs: tuple[Any, ...], output: Any) -> Any:
            rows = inputs[0].reshape(seeds, -1, inputs[0].shape[-1]).to(first.dtype)
            delta = torch.bmm(torch.bmm(rows, first), second)
            return output + (delta * scale).reshape(output.shape).to(output.dtype)

        return add_update

    def save_adapter(self, folder: Path, row: int, base: str) -> None:
        """Write the adapter of the seed at index `row` to a new folder in peft's format, for a
        server. `base` is the name of the base model in its configuration.

        Raise FileExistsError if the folder exists.
        """
        from safetensors.torch import save_file

        folder.mkdir(parents=True)
        tensors, rank = {}, self.pairs[0][0].shape[-1]
        for (name, _), (first, second) in zip(self.layers, self.pairs, strict=True):
            for letter, matrix in (("A", first), ("B", second)):
                weight = matrix[row].detach().T.contiguous().cpu()
                tensors[f"base_model.model.{name}.lora_{letter}.weight"] = weight
        save_file(tensors, str(folder / "adapter_model.safetensors"))
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": rank,
            "lora_alpha": self.scale * rank,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": sorted({name.rpartition(".")[2] for name, _ in self.layers}),
        }
        (folder / "adapter_config.json").write_text(json.dumps(config))

    def merge_into(self, model: Any, row: int = 0) -> None:
        """Add the update of the seed at index `row` to the weights of `model`, a copy of the base,
        in place."""
        modules = dict(model.named_modules())
        with torch.no_grad():
            for (name, _), (first, second) in zip(self.layers, self.pairs, strict=True):
                weight = modules[name].weight
                weight += (first[row] @ second[row] * self.scale).T.to(weight.dtype)


def target_layers(model: Any, names: Sequence[str]) -> list[tuple[str, Any]]:
    """Return (full name, module) of the linear layers whose last name part is among `names`, in the
    model's order. Raise TrainError without any."""
    name_set = set(names)
    layers = [
        (name, module)
        for name, module in model.named_modules()
        if name.rpartition(".")[2] in name_set and isinstance(module, torch.nn.Linear)
    ]
    if not layers:
        raise TrainError(
            f"target_modules: found no linear layer named {', '.join(names)} in "
            f"{type(model).__name__}; expected some; set judge.args.inner.target_modules"
        )
    return layers


def layer_shape(module: Any) -> tuple[int, int]:
    """Return a linear layer's (inputs, outputs)."""
    return module.in_features, module.out_features
