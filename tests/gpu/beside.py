"""A training step and vLLM of the same shape on one card: what both take, and the server itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from convbench.learn.memory import Kind, MemoryParts, step_memory
from convbench.learn.placement import CONTEXT_BYTES
from convbench.models.devices import Device, Placement
from convbench.models.engine_memory import engine_memory, place_engine
from convbench.models.vllm import VLLMModel
from convbench.schema import Message, Sampling
from convbench.schema.run import Flag
from tests.bench.step_memory import SIZE, inner_settings, recipe_of, shape_named
from tests.helpers.shapes import write_model

TOKENS, CONVERSATIONS = 2_048, 32
"""Context of the engine, and conversations that it holds at once."""


def planned_step(kind: Kind, name: str) -> tuple[Any, MemoryParts]:
    """Return the recipe of one training in bf16 with an adapter, and what the plan says of it."""
    rows = SIZE.rows // (2 if kind in ("preference", "critic") else 1)
    recipe = recipe_of(kind, lora=True, rows=rows)
    settings = inner_settings(recipe) if kind == "pretraining" else recipe
    return recipe, step_memory(kind, shape_named(name), settings, SIZE)


def share_of_engine(name: str, card_bytes: float) -> float | None:
    """Return the share of a card for an engine of a shape; None if the card does not hold it."""
    placed = place_engine(engine_memory(shape_named(name), TOKENS, CONVERSATIONS), 1, card_bytes)
    return int(placed.share * 100) / 100 if placed else None


def does_fit_beside(kind: Kind, name: str, card_bytes: float) -> bool:
    """Return True if a step and an engine of the same shape fit one card together."""
    share = share_of_engine(name, card_bytes)
    step = planned_step(kind, name)[1].total + CONTEXT_BYTES
    return share is not None and share * card_bytes + step <= card_bytes


@contextmanager
def serve_random_weights(
    folder: Path, card: Device, share: float, python: Path | None = None, more: Sequence[str] = ()
) -> Iterator[VLLMModel]:
    """Yield a server of Llama-3.1-8B's shape with random weights that has answered once."""
    weights = write_model(folder / "weights")
    arguments: dict[str, Flag] = {
        "load-format": "dummy",
        "max-model-len": TOKENS,
        **dict.fromkeys(more, True),
    }
    placement = Placement((card.name,), share, arguments)
    with asyncio.Runner() as runner:
        model = VLLMModel(f"vllm:{weights}", python=python, log_dir=folder, placement=placement)
        try:
            hello: list[Message] = [{"role": "user", "content": "hello"}]
            runner.run(model.complete(hello, Sampling(max_tokens=8), key="first"))
            yield model
        finally:
            runner.run(model.aclose())
