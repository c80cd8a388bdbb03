"""Train the adapters of one edit. Imports torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from convbench.judge.adaptation.clock import Clock
from convbench.judge.adaptation.lora import Stack
from convbench.judge.adaptation.settings import Inner
from convbench.judge.adaptation.texts import steps

BETAS, EPS = (0.9, 0.999), 1e-8
"""AdamW's, as torch has them."""


class Diverged(Exception):
    """Training did not end well; the text says why."""


def fit(model: Any, stack: Stack, rows: Sequence[Sequence[int]], inner: Inner, clock: Clock) -> int:
    """Train a stack on token rows, every token counting; return the steps taken.

    Every seed takes the rows in an order of its own. The loss of a seed is the mean over the
    tokens of its step. Raises Diverged where the loss is no number or a limit is passed.
    """
    wanted = steps(len(rows), inner)
    if wanted > inner.max_steps:
        raise Diverged(f"asks for {wanted} steps; the limit is {inner.max_steps}")
    started = time.monotonic()
    adam = Adam(stack, inner, wanted)
    with stack.worn():
        for number, orders in enumerate(_steps(len(rows), stack.seeds, inner)):
            loss, gradient = _gradient(model, stack, rows, orders, inner, clock)
            if not bool(torch.isfinite(loss).all()):
                raise Diverged(f"diverged: the loss is {float(loss.max())} at step {number + 1}")
            adam.step(gradient)
            if time.monotonic() - started > inner.max_seconds:
                raise Diverged(f"took longer than {inner.max_seconds:g} s")
    if not bool(torch.isfinite(stack.flat).all()):
        raise Diverged("diverged: the adapter holds numbers that are not finite")
    return wanted


def _steps(count: int, seeds: Sequence[int], inner: Inner) -> Iterator[list[list[int]]]:
    """Yield, step by step, the row numbers of every seed."""
    streams = [torch.Generator().manual_seed(seed + 1) for seed in seeds]
    size = inner.batch_size * inner.accumulation
    for _ in range(inner.epochs):
        orders = [torch.randperm(count, generator=stream).tolist() for stream in streams]
        for start in range(0, count, size):
            yield [order[start : start + size] for order in orders]


def _gradient(
    model: Any,
    stack: Stack,
    rows: Sequence[Sequence[int]],
    orders: Sequence[Sequence[int]],
    inner: Inner,
    clock: Clock,
) -> tuple[Any, Any]:
    """Return the loss of every seed in one step, and its gradient."""
    tokens = [sum(len(rows[i]) - 1 for i in order) for order in orders]
    share = 1 / torch.tensor(tokens, device=model.device)
    losses, gradient = torch.zeros(len(orders), device=model.device), None
    for start in range(0, len(orders[0]), inner.batch_size):
        part = [[rows[i] for i in order[start : start + inner.batch_size]] for order in orders]
        ids, mask, labels = batch([row for seed in part for row in seed], model.device)
        with clock.passing():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
            found = torch.nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]).float(), labels.reshape(-1), reduction="none"
            )
            by_seed = found.view(len(orders), -1).sum(-1) * share
            more = stack.gradient(by_seed.sum())
        losses += by_seed.detach()
        gradient = more if gradient is None else gradient + more
    return losses, gradient


def batch(rows: Sequence[Sequence[int]], device: Any) -> tuple[Any, Any, Any]:
    """Return ids, mask and shifted labels [rows, tokens]; padded on the right."""
    width = max(len(row) for row in rows)
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    mask = (torch.arange(width, device=device)[None] < lengths[:, None]).long()
    return ids, mask, ids.masked_fill(mask == 0, -100)[:, 1:]


class Adam:
    """AdamW without weight decay, over all adapters at once, each clipped by its own norm."""

    def __init__(self, stack: Stack, inner: Inner, total: int) -> None:
        self.stack, self.inner, self.total, self.done = stack, inner, total, 0
        self.mean = torch.zeros_like(stack.flat)
        self.square = torch.zeros_like(stack.flat)

    def step(self, grad: Any) -> None:
        """Take one step with a gradient [seeds, numbers]."""
        inner = self.inner
        if inner.max_grad_norm:
            norm = grad.norm(dim=1, keepdim=True)
            grad.mul_((inner.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        left = 1 - self.done / self.total if inner.schedule == "linear" else 1.0
        self.done += 1
        self.mean.lerp_(grad, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(grad, grad, value=1 - BETAS[1])
        root = (self.square / (1 - BETAS[1] ** self.done)).sqrt_().add_(EPS)
        rate = inner.learning_rate * left / (1 - BETAS[0] ** self.done)
        self.stack.flat.addcdiv_(self.mean, root, value=-rate)
