"""Attention in bfloat16 on a CPU: plain matrix products where rows are short.

torch's fused kernel takes a third of a training step there (SmolLM2-135M, rows of 360 tokens), most
of it going back, and the products take a quarter of that. In float32 the two are alike.
"""

from __future__ import annotations

from typing import Any

KEPT = 6
"""Bytes kept of each pair of tokens for the way back, in float32 (4) and in bfloat16 (2)."""
ROOM = 3 << 30
"""Bytes that they may take together."""


def attend_plainly(model: Any, rows: int, longest: int, *, checkpointed: bool) -> None:
    """Have `model` attend by plain products where a batch of `rows` times `longest` tokens keeps
    at most ROOM bytes; `checkpointed`: it keeps one layer's at a time. Nothing is changed for a
    model whose attention was chosen."""
    config = model.config.get_text_config()
    if getattr(config, "_attn_implementation", None) != "sdpa":
        return
    layers = 1 if checkpointed else config.num_hidden_layers
    if layers * config.num_attention_heads * rows * longest**2 * KEPT <= ROOM:
        model.set_attn_implementation("eager")
