"""Logits at one token of each row, where rows are padded on the right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Last:
    """Has the model compute logits at one token of each row, where rows are padded on the right:
    the head is given the hidden states of these tokens alone."""

    def __init__(self, model: Any) -> None:
        self._ends: Any = None
        model.get_output_embeddings().register_forward_pre_hook(self._hidden)

    @contextmanager
    def of(self, ends: Any) -> Iterator[None]:
        """Within it logits are [rows, 1, vocabulary], at the tokens `ends` [rows]; None: all."""
        self._ends = ends
        yield
        self._ends = None

    def _hidden(self, head: Any, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if self._ends is None:
            return None
        hidden, *others = given
        rows = torch.arange(len(hidden), device=hidden.device)
        return (hidden[rows, self._ends][:, None], *others)
