"""Equations (2) and (3) on a tiny model, to 1e-6 and by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from convbench.learn.advantage import advantages, padded, pair_loss, scores, turn_log_probs
from convbench.learn.sweet import Row

VOCABULARY = 50


class Uniform(torch.nn.Module):
    """log pi of token k is log softmax(bias)[k] everywhere: known by hand."""

    def __init__(self, bias: list[float]) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.tensor(bias, dtype=torch.float64))
        self.device = torch.device("cpu")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        class Out:
            logits = self.bias.expand(*input_ids.shape, -1)

        return Out


def row(*stretches: tuple[int, list[int]]) -> Row:
    ids = [t for _, tokens in stretches for t in tokens]
    turns = [mark for mark, tokens in stretches for _ in tokens]
    return Row(tuple(ids), tuple(turns))


SHORT = row((-1, [1, 2, 3]), (0, [5]))
LONG = row((-1, [1, 2]), (0, [7] * 100), (-1, [4]), (1, [6, 6]))


@pytest.mark.parametrize("beside", [[], [row((-1, [1]), (0, [9] * 300))]])
def test_turns_of_1_and_100_tokens_give_the_hand_values(beside: list[Row]) -> None:
    bias = [0.0] * VOCABULARY
    bias[5], bias[6], bias[7] = 1.0, 2.0, -1.0
    total = math.log(47 + math.e + math.e**2 + math.e**-1)
    model = Uniform(bias)
    batch = padded([[SHORT], [LONG], *([r] for r in beside)], 0)
    mean = turn_log_probs(model, batch, mean=True)[:3].tolist()
    assert mean == pytest.approx([1 - total, -1 - total, 2 - total], abs=1e-9)
    summed = turn_log_probs(model, batch, mean=False)[:3].tolist()
    assert summed == pytest.approx([1 - total, 100 * (-1 - total), 2 * (2 - total)], abs=1e-9)
    reference = turn_log_probs(Uniform([0.0] * VOCABULARY), batch, mean=True)
    owner = batch["owner"]
    assert owner[:3].tolist() == [0, 1, 1]
    sums = advantages(turn_log_probs(model, batch, mean=True), reference, owner)
    base = -math.log(VOCABULARY)
    wanted = [1 - total - base, (-1 - total - base) + (2 - total - base)]
    assert sums[:2].tolist() == pytest.approx(wanted, abs=1e-9)
    loss = pair_loss(sums[:1], sums[1:2], 0.1).item()
    assert loss == pytest.approx(math.log1p(math.exp(-0.1 * (wanted[0] - wanted[1]))), abs=1e-9)


def test_at_the_start_the_advantage_is_0_and_the_loss_log_2(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    from tests.learn.tiny import save_model

    model = AutoModelForCausalLM.from_pretrained(save_model(tmp_path), dtype=torch.float64)
    rows = [[SHORT], [LONG], [LONG, row((-1, [3]), (2, [8, 9]))]]
    reference = scores(model, rows, 0, mean=True)
    assert [len(r) for r in reference] == [1, 2, 3]
    batch = padded(rows, 0)
    now = turn_log_probs(model, batch, mean=True)
    sums = advantages(now, torch.cat(reference), batch["owner"])
    assert sums.abs().max().item() < 1e-12
    assert pair_loss(sums[:1], sums[1:2], 0.1).item() == pytest.approx(math.log(2), abs=1e-9)
    alone = turn_log_probs(model, padded([[SHORT]], 0), mean=True)
    assert alone.item() == pytest.approx(now[0].item(), abs=1e-9), "padding changes nothing"


@pytest.mark.slow
def test_train_sweet_end_to_end_on_a_tiny_model(tmp_path: Path) -> None:
    """Both stages, taken up between them; losses start at log 2; stage 2 starts from the base."""
    from convbench.commands.calls import CallOptions
    from convbench.commands.specs import SpecOptions
    from convbench.commands.sweet import sweet
    from convbench.commands.train import TrainOptions
    from tests.learn.tiny import save_model

    from .runs import SENTINEL, judged_run

    base = save_model(tmp_path / "base")
    told = [
        (f"q{i}", [f"which {w}?", "I WANT TO ANSWER: x"], reward)
        for i in range(4)
        for w, reward in (("colour", 1.0), ("mood", 0.0))
    ]
    run = judged_run(tmp_path / "run", told, f"local:{base}")
    sets = (
        "args.candidates=4", "args.nll=0", "args.held_out=0", "args.conversations=1",
        "fit.precision=fp64", "fit.epochs=1", "fit.batch_size=4", "fit.accumulation=1",
        "fit.log_every=1", 'args.critic={"epochs": 2, "learning_rate": 1.0e-3}',
        "fit.learning_rate=1e-3", "fit.save=end", "fit.gradient_checkpointing=false",
    )  # fmt: skip
    options = TrainOptions(recipe="sweet", run=run.path, specs=SpecOptions(sets=sets),
                           in_process=True)  # fmt: skip
    folder = run.checkpoints / "sweet"
    done = sweet(options, CallOptions(quiet=True))
    assert done.path == folder
    for stage in (folder / "critic", folder):
        made = json.loads((stage / "training.json").read_text())
        assert made["base"] == str(base)
        assert made["log"][0]["loss"] == pytest.approx(math.log(2), abs=1e-6)
    ranked = [json.loads(line) for line in (folder / "ranked.jsonl").read_text().splitlines()]
    assert len(ranked) == 4 * 2 * 4
    assert SENTINEL not in (folder / "ranked.jsonl").read_text()
    assert any(row["advantage"] != 0 for row in ranked)
    before = (folder / "critic" / "model.safetensors").stat().st_mtime_ns
    (folder / "training.json").unlink()
    sweet(options, CallOptions(quiet=True))
    assert (folder / "critic" / "model.safetensors").stat().st_mtime_ns == before
    assert (folder / "training.json").exists()
