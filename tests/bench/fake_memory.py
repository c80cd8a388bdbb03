"""Counts the memory of a real training step whose numbers are never computed.

Every tensor of floats is fake: it has a shape and no data. Tensors of whole numbers (token ids,
masks, labels) stay real, so that what depends on them - how many tokens have a loss - is known.
`torch.distributed._tools.MemTracker` cannot do that: it takes the modules and the optimiser before
the step, where the trainers make both within `train()`, and every boolean index stops fake tensors.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from weakref import ref

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

BLOCK = 512
"""CUDA's allocator hands out multiples of it."""


IN_PLACE = {
    "aten.add.Tensor": torch.ops.aten.add_.Tensor,
    "aten.index_put.default": torch.ops.aten.index_put_.default,
    "aten.scatter_add.default": torch.ops.aten.scatter_add_.default,
}


class Counted(FakeTensorMode):
    """Fake tensors, and a count of the bytes of all storages that live."""

    def __init__(self, *, names: bool = False, offload: bool = False) -> None:
        """`names`: keep what lives at the peak, too (slow). `offload`: tensors of all weights in
        one row are in host memory, and counted apart."""
        super().__init__(allow_non_fake_inputs=True)
        self.live, self.peak, self.depth = 0, 0, 0
        self.offload, self.host_live, self.host_peak = offload, 0, 0
        self.names = names
        self.storages: Any = WeakIdKeyDictionary()
        self.by_op: Counter[tuple[str, str]] = Counter()
        self.at_peak: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            return 1.0
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        if is_real(func, tensors, args, kwargs):
            result = func(*args, **kwargs)  # this mode is off inside its own dispatch
        else:
            args, func = whole_indices(func, args), self.in_place(func, args)
            self.depth += 1
            try:
                result = super().__torch_dispatch__(func, types, args, kwargs)
            finally:
                self.depth -= 1
        if self.depth == 0:  # within a kernel nothing is kept
            tree_map_only(torch.Tensor, lambda x: self.count(x, func), result)
        return result

    def in_place(self, func: Any, args: Any) -> Any:
        """Return what autograd calls on plain tensors: it adds to and fills a gradient in place,
        but never one of a subclass of tensors."""
        if self.depth or torch._C._current_graph_task_id() == -1 or torch.is_grad_enabled():
            return func
        if func is torch.ops.aten.add.Tensor and getattr(args[1], "shape", None) != args[0].shape:
            return func
        return IN_PLACE.get(str(func), func)

    def count(self, tensor: torch.Tensor, func: Any) -> None:
        """Add a tensor's storage, if it is a new one."""
        storage = tensor.untyped_storage()
        if storage in self.storages:
            return
        if self.offload and len(tensor.shape) < 3 and tensor.numel() > 1e9:
            self.count_host(storage)
            return
        size = math.ceil(storage.nbytes() / BLOCK) * BLOCK
        what = ("", "")
        if self.names:
            what = (str(func).removeprefix("aten."), f"{tensor.dtype} {tuple(tensor.shape)}"[6:])
            self.by_op[what] += size

        def release(_: Any) -> None:
            self.live -= size
            if self.names:
                self.by_op[what] -= size

        self.storages[storage] = ref(storage, release)
        self.live += size
        if self.live > self.peak:
            self.peak = self.live
            if self.names:
                self.at_peak = Counter(self.by_op)

    def count_host(self, storage: Any) -> None:
        """Add a storage in host memory."""
        size = storage.nbytes()

        def release(_: Any) -> None:
            self.host_live -= size

        self.storages[storage] = ref(storage, release)
        self.host_live += size
        self.host_peak = max(self.host_peak, self.host_live)


def is_real(func: Any, tensors: list[torch.Tensor], args: Any, kwargs: Any) -> bool:
    """Whether an operation is computed: of real tensors alone, or a new one of whole numbers."""
    if any(isinstance(x, FakeTensor) for x in tensors):
        return False
    if tensors:
        return all(x.device.type == "cpu" for x in tensors)
    kind = kwargs.get("dtype")
    if kind is not None:
        return not kind.is_floating_point
    whole = ("aten.randperm", "aten.arange", "aten.full.")
    return str(func).startswith(whole) and not any(isinstance(x, float) for x in args)


def whole_indices(func: Any, args: Any) -> Any:
    """Return arguments whose boolean masks, which are real, became the places they name."""
    names = ("aten.index.Tensor", "aten.index_put.default", "aten.index_put_.default")
    if str(func) not in names:
        return args
    places: list[Any] = []
    for index in args[1]:
        if index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor):
            places += list(torch.nonzero(index, as_tuple=True))
        else:
            places.append(index)
    return (args[0], places, *args[2:])


@contextmanager
def as_on_a_card() -> Iterator[None]:
    """Let the trainers and their libraries do on the CPU what they do on a card: logits of labelled
    tokens by TRL's head, whose kernels work in place, and AdamW over lists of tensors."""
    from torch.optim import adam
    from trl.kernels import chunked_logprob
    from trl.trainer import utils

    from convbench.learn import fitting, kernels

    arguments = fitting.training_arguments

    def cpu_arguments(*args: Any, **named: Any) -> dict[str, Any]:
        return {
            **arguments(*args, **named), "use_cpu": True, "dataloader_pin_memory": False,
            "logging_strategy": "no", "logging_first_step": False,
        }  # fmt: skip

    def nothing(*_: Any, **__: Any) -> None:
        return None

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return torch.native_dropout(x, p, training)[0] if training and p else x

    patches = [
        (torch.nn.functional, "dropout", dropout),  # keeps a byte a number, not a float
        (utils, "_use_triton", lambda _: True), (chunked_logprob, "_forward_tile", nothing),
        (chunked_logprob, "_backward_tile", nothing), (chunked_logprob, "_addmm_fp32", nothing),
        (adam, "_default_to_fused_or_foreach", lambda *_, **__: (False, True)),
        (fitting, "on_cpu", lambda: False), (kernels, "on_cpu", lambda: False),
        (torch.nn.Module, "to", lambda model, *_, **__: model),  # all is there already
        (fitting, "local_device", lambda: "cpu"), (fitting, "training_arguments", cpu_arguments),
    ]  # fmt: skip
    with ExitStack() as stack:
        for module, name, other in patches:
            stack.enter_context(mock.patch.object(module, name, other))
        yield
