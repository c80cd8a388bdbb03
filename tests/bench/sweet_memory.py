"""Predicted and measured peaks of SWEET's critic on a random model of 100 million weights.

    python -m tests.bench.sweet_memory scoring|training [ROWS LENGTH]

Builds the model in float32, scores a batch or takes one training step of AdamW on it, in this
process, and prints one line of JSON: what `learn/sweet/critic.py` predicts, and how much the
process's resident memory grew at its peak.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from convbench.learn.sweet import critic
from convbench.learn.sweet.critic import (
    pad_trajectories,
    pair_loss,
    score_turns,
    sum_advantages,
    turn_log_probs,
)
from convbench.learn.sweet.pairs import CriticRow
from convbench.models.weights_path import _read_shape

SIZES = {
    "vocab_size": 32_000, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 2304, "tie_word_embeddings": True,
}  # fmt: skip


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Watch:
    """The largest resident memory while a block runs, looked at every 5 ms."""

    def __enter__(self) -> Watch:
        self.most, self.over = resident(), False
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self.over:
            self.most = max(self.most, resident())
            time.sleep(0.005)

    def __exit__(self, *_: Any) -> None:
        self.over = True
        self._thread.join()


def row(length: int, said: int) -> CriticRow:
    """A random row whose last tokens are one turn of the policy."""
    draw = random.Random(length)
    ids = tuple(draw.randrange(SIZES["vocab_size"]) for _ in range(length))
    return CriticRow(ids, (-1,) * (length - said) + (0,) * said)


def main() -> None:
    """Measure one of the two."""
    from transformers import LlamaConfig, LlamaForCausalLM

    what, *numbers = sys.argv[1:]
    many, length = map(int, numbers) if numbers else (4, 384)
    torch.set_num_threads(1)
    small = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 32,
             "num_attention_heads": 2, "num_key_value_heads": 2}  # fmt: skip
    warm = LlamaForCausalLM(LlamaConfig(**small))  # what libraries load is none of the model's
    warm(torch.ones(2, 8, dtype=torch.long)).logits.sum().backward()
    torch.optim.AdamW(warm.parameters(), foreach=False).step()
    before = resident()
    with Watch() as watch:
        model = LlamaForCausalLM(LlamaConfig(**SIZES, max_position_embeddings=2048))
        rows = [[row(length, length // 3)] for _ in range(many)]
        shape = _read_shape(dict(SIZES))
        assert shape is not None
        batch = critic.BatchShape((length,) * many, (length // 3,) * many)
        if what == "scoring":
            score_turns(model, rows, 0, mean="turn", tokens=many * length)
            told = critic.scoring_memory(shape, batch)
        else:
            model.train()
            adam = torch.optim.AdamW(model.parameters(), foreach=False)
            for _ in range(2):  # moments are there from the first step on
                found = pad_trajectories(rows, 0)
                values = turn_log_probs(model, found, mean="turn")
                sums = sum_advantages(values, torch.zeros_like(values), found["owner"])
                pair_loss(*sums.chunk(2), 0.1).mean().backward()
                adam.step()
                if _ == 0:
                    adam.zero_grad(set_to_none=True)
            told = critic.training_memory(shape, batch)
    grown = watch.most - before
    print(json.dumps({
        "what": what, "weights": sum(p.numel() for p in model.parameters()), "rows": many,
        "length": length, "predicted_mb": round(told.total / 1e6), "measured_mb":
        round(grown / 1e6), "ratio": round(told.total / grown, 3),
        "parts_mb": {k: round(v / 1e6) for k, v in vars(told).items()},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
