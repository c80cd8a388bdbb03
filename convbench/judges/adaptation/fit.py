"""Train the adapters of one edit. Imports torch."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from convbench.judges.adaptation.clock import PassClock
from convbench.judges.adaptation.full_finetune import FullFinetune
from convbench.judges.adaptation.lora import MultiSeedLora
from convbench.judges.adaptation.settings import InnerSettings, count_steps, rows_at_once

BETAS, EPS = (0.9, 0.999), 1e-8
"""AdamW's defaults in torch."""
AWAY = -100
"""Label of a token without loss, as in torch."""


class TrainingDiverged(Exception):
    """Training failed or passed a limit; the message says why."""


def fit_adapters(
    model: Any,
    stack: MultiSeedLora | FullFinetune,
    rows: Sequence[Sequence[int]],
    inner: InnerSettings,
    clock: PassClock,
    starts: Sequence[int] | None = None,
) -> int:
    """Train the adapters of all seeds on rows of token ids, in place, and return the number of
    steps of each seed.

    All tokens but a row's first have a loss, or those from its index in `starts` on. Each seed
    takes the rows in its own order. The loss of a seed is the mean over the tokens of its step.
    Raise TrainingDiverged if the loss is not finite or a limit of steps or seconds is passed.
    """
    total = count_steps(len(rows), inner)
    if total > inner.max_steps:
        raise TrainingDiverged(f"needs {total} steps; the limit is {inner.max_steps}")
    started = time.monotonic()
    adam = Adam(stack, inner, total)
    labels = next_token_labels(rows, starts)
    size = rows_at_once(max(map(len, rows)), len(stack.seeds), inner)
    with stack.apply_to_model(), recomputed_layers(model, size is not None):
        for number, orders in enumerate(_iter_steps(len(rows), stack.seeds, inner)):
            loss, gradient = _step_gradient(
                model, stack, (rows, labels), orders, inner, clock, size
            )
            if not bool(torch.isfinite(loss).all()):
                raise TrainingDiverged(
                    f"diverged: the loss is {float(loss.max())} at step {number + 1}"
                )
            adam.step(gradient)
            del gradient  # of all weights: not kept while the next step makes its own
            if time.monotonic() - started > inner.max_seconds:
                raise TrainingDiverged(f"took longer than {inner.max_seconds:g} s")
    if not bool(torch.isfinite(stack.flat).all()):
        raise TrainingDiverged("diverged: the adapter holds numbers that are not finite")
    return total


def _iter_steps(
    count: int, seeds: Sequence[int], inner: InnerSettings
) -> Iterator[list[list[int]]]:
    """Yield for each step the row numbers of every seed."""
    streams = [torch.Generator().manual_seed(seed + 1) for seed in seeds]
    size = inner.batch_size * inner.accumulation
    for _ in range(inner.epochs):
        orders = [torch.randperm(count, generator=stream).tolist() for stream in streams]
        for start in range(0, count, size):
            yield [order[start : start + size] for order in orders]


def _step_gradient(
    model: Any,
    stack: MultiSeedLora | FullFinetune,
    rows_and_labels: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]],
    orders: Sequence[Sequence[int]],
    inner: InnerSettings,
    clock: PassClock,
    part_size: int | None,
) -> tuple[Any, Any]:
    """Return (loss of every seed in one step [seeds], its gradient [seeds, numbers]).

    `part_size` rows of each seed go through in one pass, of which only the logits that have a label
    are computed; None: a batch, as one.
    """
    rows, targets = rows_and_labels
    tokens = [sum(label != AWAY for i in order for label in targets[i]) for order in orders]
    share = 1 / torch.tensor(tokens, device=model.device)
    losses, gradient = torch.zeros(len(orders), device=model.device), None
    size = part_size or inner.batch_size
    for start in range(0, len(orders[0]), size):
        part = [i for order in orders for i in order[start : start + size]]
        ids, mask = pad_rows([rows[i] for i in part], model.device)
        labels = pad_rows([targets[i] for i in part], model.device, AWAY)[0]
        positions: dict[str, Any] = {}
        if part_size and "logits_to_keep" in inspect.signature(model.forward).parameters:
            labelled = (labels != AWAY).any(0).nonzero()[:, 0]
            positions["logits_to_keep"] = labelled if len(labelled) else labelled.new_zeros(1)
            labels = labels[:, positions["logits_to_keep"]]
        with clock.count_pass():
            with torch.autocast(
                model.device.type, torch.bfloat16, enabled=inner.precision == "bf16"
            ):
                logits = model(
                    input_ids=ids, attention_mask=mask, use_cache=False, **positions
                ).logits[:, : labels.shape[1]]
            loss = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1), reduction="none"
            )
            by_seed = loss.view(len(orders), -1).sum(-1) * share
            more = stack.loss_gradient(by_seed.sum())
        losses += by_seed.detach()
        gradient = more if gradient is None else gradient.add_(more)
        del more
    return losses, gradient


@contextmanager
def recomputed_layers(model: Any, is_on: bool) -> Iterator[None]:
    """Let the model's layers compute their activations again in the backward pass in place of
    keeping them, during the block, if the flag is set. The model stays in evaluation mode: dropout
    is in modules within the layers."""
    from torch.utils.checkpoint import checkpoint
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [m for m in model.modules() if is_on and isinstance(m, GradientCheckpointingLayer)]
    for layer in layers:
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
        layer.gradient_checkpointing = layer.training = True
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = layer.training = False


def next_token_labels(
    rows: Sequence[Sequence[int]], starts: Sequence[int] | None = None
) -> list[list[int]]:
    """Return for each row the labels of its tokens but the last: the next token's id, or -100
    (`AWAY`, no loss) if that token is before the row's start.

    `starts` has the index of each row's first token with a loss; by default it is the second token.
    """
    starts = [1] * len(rows) if starts is None else starts
    return [
        [token if at >= start else AWAY for at, token in enumerate(row)][1:]
        for row, start in zip(rows, starts, strict=True)
    ]


def pad_rows(rows: Sequence[Sequence[int]], device: Any, sign: int = 0) -> tuple[Any, Any]:
    """Return two tensors [rows, tokens]: the rows padded on the right with `sign`, and a mask that
    is 1 for tokens and 0 for padding.

    Raise ValueError without rows.
    """
    width = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[sign] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, (torch.arange(width, device=device)[None] < lengths[:, None]).long()


def rate_share(done: int, total: int, inner: InnerSettings) -> float:
    """Return the learning rate of the step after `done` of `total` steps as a share of its peak, 0
    to 1, as in transformers' schedules: linear warm-up, then constant, linear or cosine decay to 0.
    """
    if done < inner.warmup_steps:
        return done / inner.warmup_steps
    if inner.schedule == "constant":
        return 1.0
    left = 1 - (done - inner.warmup_steps) / max(1, total - inner.warmup_steps)
    return left if inner.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * (1 - left)))


class Adam:
    """AdamW without weight decay over all seeds at once, each clipped by its own norm."""

    def __init__(
        self, stack: MultiSeedLora | FullFinetune, inner: InnerSettings, total: int
    ) -> None:
        self.stack, self.inner, self.total, self.done = stack, inner, total, 0
        self.mean = torch.zeros_like(stack.flat)
        self.square = torch.zeros_like(stack.flat)

    def step(self, grad: Any) -> None:
        """Take one step with a gradient [seeds, numbers]: change the adapters in place.

        Each seed's gradient is clipped in place by its own norm.
        """
        inner = self.inner
        if inner.max_grad_norm:
            norm = grad.norm(dim=1, keepdim=True)
            grad.mul_((inner.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        left = rate_share(self.done, self.total, inner)
        self.done += 1
        self.mean.lerp_(grad, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
        root = (self.square / (1 - BETAS[1] ** self.done)).sqrt_().add_(EPS)
        rate = inner.learning_rate * left / (1 - BETAS[0] ** self.done)
        self.stack.flat.addcdiv_(self.mean, root, value=-rate)
