"""Packed rows beside padded ones, and the memory of both beside TRL's own trainer.

Rows are as long as ARC's: prompts by the deciles of 420 conversations about ARC-Easy in SmolLM2's
tokens, what the teacher says in turns 2 and 3, and replies of one length: 100 tokens, about what
the paper prints of ARC (its section E.4), or 32, as experiment `smollm` has them. The model has
SmolLM2-135M's width, one layer and a small head, so that attention, layers and head share the work
about as there. CPU seconds, interleaved; peak memory in processes of their own.

    python -m tests.bench packing
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.bench import ROOT, Row, high_water

PROMPTS = (126, 135, 138, 141, 146, 150, 156, 160, 169, 181, 222)
"""Deciles of the first prompt, in tokens."""
ASKED = (0, 46, 70)
"""Tokens of what the teacher says before turns 2 and 3."""
CONVERSATIONS, ROUNDS = 32, 1
RECIPE = {"batch_size": 8, "accumulation": 4, "gradient_checkpointing": False, "probe": False}
"""The paper's batch; no checkpointing, for less CPU."""
WHOLE = {"batch_size": 32, "accumulation": 1}
"""The same step in one batch."""
CASES: tuple[tuple[int, str, tuple[str, ...], float], ...] = (
    (100, "turn", (), 1.25), (100, "turn", ("whole",), 1.3), (32, "turn", (), 1.2),
    (100, "conversation", (), 0.97),
)  # fmt: skip
"""Tokens of a reply, what a row is, the batch, and the least gain."""


def save_model(folder: Path) -> Path:
    """Save a Llama of one layer as wide as SmolLM2-135M's."""
    from tests.helpers import tiny

    return tiny.save_model(
        folder, layers=1, vocab_size=1024, hidden_size=576, intermediate_size=1536,
        num_attention_heads=9, num_key_value_heads=3, initializer_range=0.02,
    )  # fmt: skip


def rows(reply: int, by_turn: bool) -> list[Any]:
    """Three turns of each conversation, as a row each or as one."""
    from convbench.learn.rows import TrainingRow as TrainingRow
    from convbench.learn.tokens import TokenRow

    draw = random.Random(0)
    found = []
    for number in range(CONVERSATIONS):
        low, high = draw.choice(list(pairwise(PROMPTS)))
        mask, ends = [0] * draw.randint(low, high), []
        for asked in ASKED:
            mask += [0] * asked + [1] * reply
            ends.append(len(mask))
        ids = tuple(draw.randrange(300, 1024) for _ in mask)
        weight = draw.choice([-1.0, 1.0])
        for turn, end in enumerate(ends if by_turn else ends[-1:]):
            own = [0] * (end - reply) + [1] * reply if by_turn else mask
            parts = len(ASKED) if by_turn else 1
            tokens = TokenRow(ids[:end], tuple(own))
            found.append(TrainingRow(str(number), turn, parts, tokens, weight))
    return found


def fit(kind: str, data: list[Any], model: Path, folder: Path, *names: str) -> float:
    """Train one epoch with the settings named on; return its CPU seconds."""
    from tests.trainers import bench

    whole = WHOLE if "whole" in names else {}
    on = {name: True for name in names if name != "whole"}
    return bench.fit(kind, data, model, folder, {**RECIPE, **whole, **on})


def peak(model: Path, folder: Path, kind: str, *names: str) -> float:
    """Peak memory in MB of one training in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.packing", str(model), str(folder), kind, *names],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(json.loads(done.stdout.splitlines()[-1]))


def packing(folder: Path) -> Iterator[Row]:
    """Yield how much faster packed rows are, and what memory each way takes."""
    model = save_model(folder / "model")
    for reply, unit, batch, bound in CASES:
        data = rows(reply, unit == "turn")
        padded, laid, ratios = batch, (*batch, "packing"), []
        for number in range(ROUNDS):
            order = (padded, laid) if number % 2 else (laid, padded)
            took = {names: fit("weighted", data, model, folder, *names) for names in order}
            ratios.append(took[padded] / took[laid])
        size = 32 if batch else 8
        yield Row(
            f"packed over padded rows, speed: a row a {unit}, replies of {reply} tokens, {size} a "
            "batch", median(ratios), "x", bound, goal=1.5 if unit == "turn" else None,
            at_least=True,
        )  # fmt: skip
    for more in ((), ("gradient_checkpointing",)):
        theirs = peak(model, folder, "trl", *more)
        for names in (more, ("packing", *more)):
            memory = peak(model, folder, "weighted", *names)
            said = " and ".join(names).replace("_", " ") or "padded"
            what = f"peak memory over TRL's own ({theirs:.0f} MB), ours {said} ({memory:.0f} MB)"
            yield Row(what, memory / theirs, "x", 1.02)


def main() -> None:
    """Train once and print this process's peak memory."""
    model, folder, kind, *names = sys.argv[1:]
    fit(kind, rows(100, True)[:32], Path(model), Path(folder), *names)
    print(high_water())


if __name__ == "__main__":
    main()
