"""SWEET-RL's turn-wise advantage model (Zhou et al. 2025), which sees what is hidden from the
policy.

    A(o_t, a_t, c) = (1/L) sum_l log pi(a_t^l | o_t, a_t^<l, c) - log pi_ref(...)    equation (3)
    J = -log sigmoid(sum_t beta A(o_t+, a_t+, c) - sum_t beta A(o_t-, a_t-, c))      equation (2)

for pairs of conversations of one task, L the tokens of a turn, c the hidden text, which the rows
hold. `args.normalize` is the mean: over each `turn`'s tokens, over all of a `trajectory`'s, or none
(false). With nothing hidden and no mean it is DPO over whole conversations, the paper's multi-turn
DPO (recipe `mt-dpo`).

    accelerate launch trainers/critic.py CHECKPOINT
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import logsigmoid
from transformers import Trainer, TrainingArguments
from trl.trainer.utils import add_fused_lm_head

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a program finds its neighbours

from convbench.learn.rows import ROWS
from convbench.learn.sweet import Normalize, SweetArgs
from convbench.schema.recipe import Recipe
from trainers import common

Pair = dict[str, Any]
"""A row of the folder, two trajectories of one task and whether the pair is held out; its
`reference` is log pi_ref of the turns of the (better, worse) one."""
Trajectory = tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
"""(ids of each of its rows, number of the policy turn of each of these tokens; -1: context)."""


def pad_trajectories(trajectories: Sequence[Trajectory]) -> dict[str, torch.Tensor]:
    """Return trajectories as one batch: `input_ids`, `attention_mask` and `turns`, each of shape
    (rows, longest). `turns` numbers the policy turns across all trajectories (-1: context);
    `owner`, shape (turns,), is the trajectory of each turn."""
    ids, turns, owner = [], [], list[int]()
    for number, (rows, marks) in enumerate(trajectories):
        first = len(owner)
        ids += [torch.tensor(row) for row in rows]
        turns += [torch.tensor([m + first if m >= 0 else -1 for m in row]) for row in marks]
        owner += [number] * (1 + max(mark for row in marks for mark in row))
    padded = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": padded(ids, batch_first=True),
        "attention_mask": padded([torch.ones_like(row) for row in ids], batch_first=True),
        "turns": padded(turns, batch_first=True, padding_value=-1),
        "owner": torch.tensor(owner),
    }


def turn_log_probs(
    model: Any, batch: dict[str, torch.Tensor], normalize: Normalize
) -> torch.Tensor:
    """Return log pi of every policy turn, shape (turns,): the mean over its tokens, its sum divided
    by its trajectory's tokens, or the sum."""
    labels = batch["input_ids"].masked_fill(batch["turns"] < 0, -100)
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    scores = model(**inputs, labels=labels, use_cache=False, fused_lm_head=True).log_probs
    marks, owner = batch["turns"][:, 1:], batch["owner"]
    here = marks >= 0
    zero = scores.new_zeros(len(owner))
    sums = zero.index_add(0, marks[here], scores[here])
    if not normalize:
        return sums
    tokens = zero.index_add(0, marks[here], torch.ones_like(scores[here]))
    if normalize == "trajectory":
        tokens = zero.new_zeros(int(owner[-1]) + 1).index_add(0, owner, tokens)[owner]
    return sums / tokens.clamp(min=1)


def sum_by_trajectory(values: torch.Tensor, owner: torch.Tensor, count: int) -> torch.Tensor:
    """Return the sum of each trajectory's turns, shape (count,)."""
    return values.new_zeros(count).index_add(0, owner, values)


def pair_loss(better: torch.Tensor, worse: torch.Tensor, beta: float) -> torch.Tensor:
    """Return -log sigma(beta sum_t A+ - beta sum_t A-), equation (2), of sums (pairs,)."""
    return -logsigmoid(beta * (better - worse))


class Critic(Trainer):
    """transformers' Trainer on pairs of trajectories, with the loss of equation (2)."""

    loss_is_scaled_for_ga = False

    def __init__(self, sweet: SweetArgs, **options: Any) -> None:
        """`options` are transformers' Trainer's."""
        super().__init__(data_collator=self._collate, **options)
        self.sweet = sweet

    def _collate(self, pairs: Sequence[Pair]) -> dict[str, torch.Tensor]:
        sides = (trajectories_of(pairs, name) for name in ("chosen", "rejected"))
        batch = pad_trajectories([trajectory for side in sides for trajectory in side])
        references = [pair["reference"][side] for side in (0, 1) for pair in pairs]
        return {**batch, "reference": torch.cat(references)}

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Return the mean loss of the pairs, plus `args.critic_nll` times the mean negative
        log-likelihood of the better ones' tokens; `return_outputs` is ignored."""
        log_probs = turn_log_probs(model, inputs, self.sweet.normalize)
        owner, count = inputs["owner"], int(inputs["owner"][-1]) + 1
        sums = sum_by_trajectory(log_probs - inputs["reference"].to(log_probs), owner, count)
        better, worse = sums.chunk(2)
        loss = pair_loss(better, worse, self.sweet.beta).mean()
        if not self.sweet.critic_nll:
            return loss
        chosen, marks = owner < count // 2, inputs["turns"][:, 1:]
        if self.sweet.normalize == "trajectory":
            per = count // 2
        elif self.sweet.normalize:
            per = chosen.sum()
        else:  # the tokens
            per = (chosen[marks.clamp(min=0)] & (marks >= 0)).sum()
        return loss - self.sweet.critic_nll * log_probs[chosen].sum() / per


def trajectories_of(pairs: Sequence[Pair], side: str) -> list[Trajectory]:
    """Return one side of pairs, `chosen` or `rejected`."""
    return [(pair[f"{side}_ids"], pair[f"{side}_turns"]) for pair in pairs]


def score(
    model: Any, trajectories: Sequence[Trajectory], normalize: Normalize, batch: int, bf16: bool
) -> list[torch.Tensor]:
    """Return log pi of the turns of each trajectory, on the CPU, in order, without gradients.

    The longest come first, so that memory runs out at once or not at all.
    """
    device = next(model.parameters()).device
    longest = [max(map(len, rows)) for rows, _ in trajectories]
    order = sorted(range(len(trajectories)), key=lambda i: -longest[i])
    values: dict[int, torch.Tensor] = {}
    for start in range(0, len(order), batch):
        places = order[start : start + batch]
        padded = pad_trajectories([trajectories[i] for i in places])
        inputs = {name: value.to(device) for name, value in padded.items()}
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            scores = turn_log_probs(model, inputs, normalize).float().cpu()
        for number, index in enumerate(places):
            values[index] = scores[padded["owner"] == number]
    return [values[i] for i in range(len(trajectories))]


def make_trainer(folder: Path, recipe: Recipe) -> tuple[Critic, list[Pair]]:
    """Return (the trainer of a checkpoint's folder with the reference's values computed, pairs held
    out)."""
    pairs = list(common.load_rows(folder / ROWS))
    rows, held = ([pair for pair in pairs if pair["held"] == side] for side in (False, True))
    adapter = common.adapter_options(recipe).get("peft_config")
    model = common.load_model(str(recipe.model), adapter is not None and common.in_bf16(recipe))
    add_fused_lm_head(model)
    if adapter is not None:
        from peft import get_peft_model

        model = get_peft_model(model, adapter)
        model.enable_input_require_grads()  # or gradient checkpointing would find none to pass on
    config = TrainingArguments(**common.arguments(folder, recipe, len(rows)))
    args = SweetArgs.from_recipe(recipe)
    trainer = Critic(args, model=model, args=config, train_dataset=rows)
    reference = common.frozen_model(trainer, str(recipe.model), recipe)
    for pair, scores in zip(pairs, score_pairs(trainer, reference, pairs, recipe), strict=True):
        pair["reference"] = scores
    return trainer, held


def score_pairs(
    trainer: Critic, model: Any, pairs: Sequence[Pair], recipe: Recipe
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return log pi of the turns of each pair's (better, worse) trajectory."""
    size, mean = trainer.args.per_device_train_batch_size, trainer.sweet.normalize
    sides = (trajectories_of(pairs, name) for name in ("chosen", "rejected"))
    scores = (score(model, side, mean, size, common.in_bf16(recipe)) for side in sides)
    return list(zip(*scores, strict=True))


def run(folder: Path, recipe: Recipe) -> None:
    """Train the critic (with nothing hidden, the policy) on the folder's pairs and save it, with
    the number of `pairs` held out and the `accuracy`: the share whose better side has the greater
    sum of advantages."""
    trainer, held = make_trainer(folder, recipe)

    def held_out() -> dict[str, Any]:
        right = 0
        found = score_pairs(trainer, trainer.model_wrapped, held, recipe)
        for pair, scores in zip(held, found, strict=True):
            both = zip(scores, pair["reference"], strict=True)
            better, worse = (float((own - known).sum()) for own, known in both)
            right += better > worse
        return {"pairs": len(held), **({"accuracy": right / len(held)} if held else {})}

    common.train(trainer, folder, recipe, held_out=held_out)


if __name__ == "__main__":
    common.main(run)
