"""The turn-wise advantage model of SWEET-RL: equations (2) and (3), training, memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
from torch.nn.functional import logsigmoid
from transformers import Trainer, TrainingArguments

from convbench.errors import TrainError
from convbench.learn import fitting
from convbench.learn.job import Job
from convbench.learn.log import LoggedConversation
from convbench.learn.steps import StepCount
from convbench.learn.sweet.pairs import (
    CriticRow,
    SweetArgs,
    TrajectoryPairs,
    check_unquantized,
    critic_rows,
)
from convbench.models.weights_path import ModelShape

BUDGET = 16_384
"""Most positions of a batch that is scored."""
FLOAT = 4
"""Bytes of a float32 number."""


@dataclass(frozen=True)
class BatchShape:
    """Sizes of one batch of rows, padded to the longest."""

    lengths: tuple[int, ...]
    """Tokens of each row."""
    policy_tokens: tuple[int, ...]
    """Policy tokens of each row."""

    @property
    def positions(self) -> int:
        """Positions of the padded batch, rows times the longest."""
        return len(self.lengths) * max(self.lengths, default=0)


@dataclass(frozen=True)
class PeakMemory:
    """Bytes at the peak of memory, by use."""

    weights: float
    """The model's weights, in the precision that it computes in."""
    training: float
    """Gradients, the optimiser's moments and its copy of the weights."""
    inside: float
    """Activations of the layers."""
    logits: float
    """Logits, and log-probabilities computed from them."""

    @property
    def total(self) -> float:
        """The sum of all uses."""
        return self.weights + self.training + self.inside + self.logits


def scoring_memory(shape: ModelShape, rows: BatchShape, width: int = FLOAT) -> PeakMemory:
    """Return the peak memory of scoring a batch without gradients; `width`: bytes of a number of
    weights and activations (2 for bf16).

    The logits of all positions exist at once, and in addition those of one row's own tokens: a
    copy, its float32 version (if it is not float32 already) and its logarithms.
    """
    policy_numbers = max(rows.policy_tokens, default=0) * shape.words
    floats = FLOAT if width == FLOAT else 2 * FLOAT
    logits = rows.positions * shape.words * width + policy_numbers * (width + floats)
    # The residual stream and one layer's tensors: its input's norm, gate, up and their product.
    layer = rows.positions * (3 * shape.hidden + 3 * shape.wide) * width
    hidden = rows.positions * 2 * shape.hidden * width
    weights = shape.weight_count * width
    inside, last = (layer, 0.0) if layer > hidden + logits else (hidden, logits)
    return PeakMemory(float(weights), 0.0, float(inside), float(last))


def training_memory(
    shape: ModelShape,
    rows: BatchShape,
    *,
    width: int = FLOAT,
    checkpointing: bool = False,
    shards: int = 1,
) -> PeakMemory:
    """Return the peak memory of one micro-batch's training step of all weights with AdamW.

    `rows` are those of a pair, both sides. Weights, gradients and two moments are float32, split
    over `shards` processes (ZeRO-3); with `width` 2 a bf16 copy computes. The peak is at the start
    of the backward pass: the layers' activations, the saved logarithms of all own tokens, and the
    gradient of the logits, once summed and once for the current row.
    """
    fixed = shape.weight_count * 3 * FLOAT / shards
    weights = shape.weight_count * FLOAT / shards + (
        shape.weight_count * width if width != FLOAT else 0
    )
    layer_numbers = 6 * shape.hidden + 3 * shape.queries + 2 * shape.keys + 4 * shape.wide
    row_numbers = rows.positions * width
    inside = row_numbers * (
        shape.layers * shape.hidden + layer_numbers
        if checkpointing
        else shape.layers * layer_numbers
    )
    policy_numbers = sum(rows.policy_tokens) * shape.words
    logits = 2 * rows.positions * shape.words * width + policy_numbers * FLOAT
    return PeakMemory(float(weights), fixed, float(inside), float(logits))


def scoring_batch(longest: Sequence[tuple[int, int]], tokens: int) -> BatchShape:
    """Return the first batch that scoring makes of rows (length, own tokens), longest first, within
    a budget of positions; it holds at least one row if there is any."""
    order = sorted(longest, reverse=True)
    if not order:
        return BatchShape((), ())
    batch = order[: max(1, tokens // max(1, order[0][0]))]
    return BatchShape(tuple(n for n, _ in batch), tuple(own for _, own in batch))


def pad_trajectories(rows: Sequence[Sequence[CriticRow]], pad: int) -> dict[str, torch.Tensor]:
    """Return trajectories as one batch: `input_ids`, `attention_mask` and `turns`, each of shape
    (rows, longest). `turns` numbers the policy turns across all trajectories (-1: not the policy);
    `owner`, shape (turns,), is the trajectory of each turn."""
    flat = [row for trajectory in rows for row in trajectory]
    shape = (len(flat), max(len(row.ids) for row in flat))
    ids = torch.full(shape, pad)
    mask, turns = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    owner: list[int] = []
    row_number = 0
    for number, trajectory in enumerate(rows):
        first = len(owner)
        for row in trajectory:
            ids[row_number, : len(row.ids)] = torch.tensor(row.ids)
            mask[row_number, : len(row.ids)] = 1
            marks = torch.tensor(row.turns)
            turns[row_number, : len(row.ids)] = torch.where(marks >= 0, marks + first, marks)
            row_number += 1
        owner += [number] * (1 + max(max(row.turns) for row in trajectory))
    return {"input_ids": ids, "attention_mask": mask, "turns": turns, "owner": torch.tensor(owner)}


Mean = bool | Literal["turn", "trajectory"]
"""Tokens over which a turn's value is the mean: its own (`turn`, True), all of its trajectory's
(`trajectory`: the turns' values add up to the mean over these), or none (False: the sum)."""


def turn_log_probs(model: Any, batch: dict[str, torch.Tensor], *, mean: Mean) -> torch.Tensor:
    """Return log pi of every policy turn, shape (turns,): the mean over its tokens, its sum divided
    by the number of its trajectory's tokens, or the sum."""
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    marks = batch["turns"][:, 1:]
    is_policy = marks >= 0
    log_probs = torch.cat(
        [
            _policy_log_probs(logits[i, :-1][is_policy[i]], batch["input_ids"][i, 1:][is_policy[i]])
            for i in range(len(logits))
        ]
    )
    count = len(batch["owner"])
    zero = log_probs.new_zeros(count)
    sums = zero.index_add(0, marks[is_policy], log_probs)
    if not mean:
        return sums
    tokens = zero.index_add(0, marks[is_policy], torch.ones_like(log_probs))
    if mean == "trajectory":
        owner = batch["owner"]
        trajectory_tokens = zero.new_zeros(int(owner.max()) + 1).index_add(0, owner, tokens)
        tokens = trajectory_tokens[owner]
    return sums / tokens.clamp(min=1)


def _policy_log_probs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return log pi of one row's policy tokens, shape (tokens,), from their logits alone: float32
    numbers of a whole batch would be the largest thing in memory (vocabulary x positions)."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return exact.log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1)


def pair_loss(better: torch.Tensor, worse: torch.Tensor, beta: float) -> torch.Tensor:
    """Return -log sigma(beta sum_t A+ - beta sum_t A-), equation (2), of sums (pairs,)."""
    return -logsigmoid(beta * (better - worse))


class CriticTrainer(Trainer):
    """Trainer on pairs of trajectories; a dataset row is (chosen, rejected), indices in `rows`."""

    def __init__(
        self,
        settings: SweetArgs,
        rows: Sequence[Sequence[CriticRow]],
        reference: Any,
        pad: int,
        **more: Any,
    ) -> None:
        """`reference[i]` is log pi_ref of the turns of trajectory i under the starting model."""
        super().__init__(data_collator=self._collate_pairs, **more)
        self.settings, self.rows, self.reference, self.pad = settings, rows, reference, pad
        self.model_accepts_loss_kwargs = False

    def _collate_pairs(self, pairs: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
        order = [better for better, _ in pairs] + [worse for _, worse in pairs]
        batch = pad_trajectories([self.rows[i] for i in order], self.pad)
        return {**batch, "reference": torch.cat([self.reference[i] for i in order])}

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Return the mean loss of the pairs, plus `critic_nll` times the chosen turns' mean token
        NLL.

        With `return_outputs` return (loss, {"advantages": the sum of each trajectory}), the better
        ones first. `reference` is removed from `inputs`.
        """
        reference = inputs.pop("reference")
        log_probs = turn_log_probs(model, inputs, mean=self.settings.normalize)
        sums = sum_advantages(log_probs, reference, inputs["owner"])
        better, worse = sums.chunk(2)
        loss = pair_loss(better, worse, self.settings.beta).mean()
        if self.settings.critic_nll:
            loss = loss + self.settings.critic_nll * self._chosen_nll(log_probs, inputs)
        return (loss, {"advantages": sums}) if return_outputs else loss

    def _chosen_nll(self, log_probs: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        chosen = inputs["owner"] < (inputs["owner"].max() + 1) // 2
        if self.settings.normalize == "trajectory":
            return -log_probs[chosen].sum() / ((inputs["owner"].max() + 1) // 2)
        if self.settings.normalize:
            return -log_probs[chosen].mean()
        marks = inputs["turns"][:, 1:]
        tokens = chosen[marks.clamp(min=0)] & (marks >= 0)
        return -log_probs[chosen].sum() / tokens.sum()


def sum_advantages(
    log_probs: torch.Tensor, reference: torch.Tensor, owner: torch.Tensor
) -> torch.Tensor:
    """Return sum_t A of every trajectory, shape (trajectories,), from its turns' log pi."""
    zero = log_probs.new_zeros(int(owner.max()) + 1)
    return zero.index_add(0, owner, log_probs - reference.to(log_probs))


def torch_device() -> torch.device:
    """Return the accelerator of this process, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def score_turns(
    model: Any,
    rows: Sequence[Sequence[CriticRow]],
    pad: int,
    *,
    mean: Mean,
    bf16: bool = False,
    tokens: int = BUDGET,
) -> list[torch.Tensor]:
    """Return log pi of the turns of each trajectory, in the order of `rows`, as tensors on the CPU,
    without gradients.

    `bf16`: under autocast, as the training computes them. Batches hold at most `tokens` positions,
    padding counted, or one trajectory; the longest come first, so that memory runs out at once or
    not at all. The model's training mode is restored.
    """
    by_index: dict[int, torch.Tensor] = {}
    model_device = next(model.parameters()).device
    training = model.training
    model.eval()
    for places in budget_batches(rows, tokens):
        batch = pad_trajectories([rows[i] for i in places], pad)
        on_device = {name: value.to(model_device) for name, value in batch.items()}
        with torch.no_grad(), torch.autocast(model_device.type, torch.bfloat16, enabled=bf16):
            values = turn_log_probs(model, on_device, mean=mean).cpu()
        for number, index in enumerate(places):
            by_index[index] = values[batch["owner"] == number]
    model.train(training)
    return [by_index[i] for i in range(len(rows))]


def score_turns_shared(
    model: Any, rows: Sequence[Sequence[CriticRow]], pad: int, *, mean: Mean, bf16: bool = False
) -> list[torch.Tensor]:
    """Return log pi of the turns of each trajectory, computed by all processes of a launcher: rows
    are dealt out by length for equal work, and every process gets all values."""
    from accelerate import PartialState

    state = PartialState()
    if state.num_processes == 1:
        return score_turns(model, rows, pad, mean=mean, bf16=bf16)
    order = sorted(
        range(len(rows)), key=lambda i: -max((len(row.ids) for row in rows[i]), default=0)
    )
    own_indices = order[state.process_index :: state.num_processes]
    own_scores = score_turns(model, [rows[i] for i in own_indices], pad, mean=mean, bf16=bf16)
    gathered: list[Any] = [None] * state.num_processes
    torch.distributed.all_gather_object(gathered, list(zip(own_indices, own_scores, strict=True)))
    by_index = dict(pair for part in gathered for pair in part)
    return [by_index[i] for i in range(len(rows))]


def centred_advantages(
    model: Any,
    reference: Any,
    rows: Sequence[Sequence[CriticRow]],
    pad: int,
    *,
    mean: bool,
    tokens: int = 8192,
) -> list[torch.Tensor]:
    """Return the advantage of the turns of each trajectory, with mean 0 under the reference.

    It is the log-ratio of each token less the average of the reference's own tokens at the same
    position, E_{a ~ pi_ref}[log pi - log pi_ref] = -KL(pi_ref || pi), as mean or sum over a turn's
    tokens. Equation (2) sees only sums over a trajectory, so a critic may lower every reply in a
    bad state, whatever it says; that is the value of the state, not of an action.
    """
    by_index: dict[int, torch.Tensor] = {}
    model_device = next(model.parameters()).device
    for places in budget_batches(rows, tokens):
        batch = {
            k: v.to(model_device)
            for k, v in pad_trajectories([rows[i] for i in places], pad).items()
        }
        model_inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            logits = [each(**model_inputs).logits for each in (model, reference)]
        marks = batch["turns"][:, 1:]
        is_policy = marks >= 0
        values = []
        for i in range(len(marks)):
            policy_log_probs, reference_log_probs = (
                each[i, :-1][is_policy[i]].float().log_softmax(-1) for each in logits
            )
            ratio = policy_log_probs - reference_log_probs
            token_ratios = ratio.gather(
                -1, batch["input_ids"][i, 1:][is_policy[i]][:, None]
            ).squeeze(-1)
            values.append(token_ratios - (reference_log_probs.exp() * ratio).sum(-1))
        flat, turns = torch.cat(values).double(), marks[is_policy]
        sums = flat.new_zeros(len(batch["owner"])).index_add(0, turns, flat)
        if mean:
            sums /= torch.bincount(turns, minlength=len(sums)).clamp(min=1)
        for number, index in enumerate(places):
            by_index[index] = sums[batch["owner"] == number].cpu()
    return [by_index[i] for i in range(len(rows))]


def budget_batches(rows: Sequence[Sequence[CriticRow]], tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices of trajectories, the longest first, of at most `tokens` positions,
    or one trajectory.

    Positions are rows times the longest row.
    """
    longest = [max((len(row.ids) for row in each), default=0) for each in rows]
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda i: -longest[i]):
        count = sum(len(rows[i]) for i in batch) + len(rows[index])
        if batch and count * longest[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


@dataclass
class CriticData:
    """The rows of every trajectory once, and pairs (better, worse) of indices among them."""

    names: list[str] = field(default_factory=list)
    rows: list[list[CriticRow]] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    dropped: int = 0
    """Pairs with a row that is too long."""

    @classmethod
    def from_pairs(cls, job: Job, trajectories: TrajectoryPairs, settings: SweetArgs) -> CriticData:
        """Return the tokenised pairs, to train on and held out; each trajectory's rows come once.

        Pairs with a row longer than the job's limit are left out and counted in `dropped`. Raise
        TrainError if none is left to train on.
        """
        table, places = cls(), dict[str, int]()

        def row_index(item: LoggedConversation) -> int:
            name = item.conversation_id
            if name not in places:
                places[name] = len(table.rows)
                table.names.append(name)
                table.rows.append(critic_rows(job.run.manifest.protocol, item, job.chat, settings))
            return places[name]

        for pairs, items in ((table.pairs, trajectories.items), (table.held, trajectories.held)):
            for better, worse in items:
                pair = row_index(better), row_index(worse)
                if job.max_length is not None and table.longest_row(pair) > job.max_length:
                    table.dropped += 1
                else:
                    pairs.append(pair)
        if not table.pairs:
            raise TrainError(f"data.max_length {job.max_length} leaves no pair; raise it")
        return table

    def longest_row(self, pair: tuple[int, int]) -> int:
        """Return the tokens of the longest row of both trajectories of a pair of indices."""
        return max(len(row.ids) for i in pair for row in self.rows[i])


def fit(job: Job, trajectories: TrajectoryPairs) -> None:
    """Train the recipe's model as the critic (with nothing hidden, as the policy) and save it in
    the job's folder."""
    trainer, table = critic_trainer(job, trajectories)
    steps = StepCount(len(table.pairs), "pair of conversations", job.recipe.fit, drop_last=True)
    fitting.run_training(trainer, job, steps)
    fitting.save_checkpoint(
        trainer,
        job,
        cast(Any, trajectories),
        counts={"pairs": len(table.pairs), "pairs dropped": table.dropped},
        held_out=held_out_figures(trainer, table),
    )


def critic_trainer(job: Job, trajectories: TrajectoryPairs) -> tuple[CriticTrainer, CriticData]:
    """Return (the critic's trainer with the model loaded, the rows it trains on).

    The reference's values are computed with the starting model before a launcher shards it. Raise
    TrainError for a quantized base, or if the limit on length leaves no pair.
    """
    check_unquantized(job)
    lora = job.recipe.lora
    fitting.silence_libraries()
    settings = SweetArgs.from_args(job.recipe.args, job.recipe.name)
    table = CriticData.from_pairs(job, trajectories, settings)
    model = fitting.load_model(job).to(torch_device())
    pad = job.chat.tokenizer.pad_token_id or 0
    bf16 = fitting.training_precision(job) == "bf16"
    values = fitting.training_arguments(job, trl=False)
    values["dataloader_drop_last"] = fitting.drops_last_batch(job, len(table.pairs))
    args = fitting.with_cpu_fsdp(
        TrainingArguments(**values)
    )  # these say that there are several processes
    reference = score_turns_shared(model, table.rows, pad, mean=settings.normalize, bf16=bf16)
    if lora is not None:
        from peft import get_peft_model

        model = get_peft_model(model, fitting.lora_config(lora))
        model.enable_input_require_grads()  # or gradient checkpointing would find none to pass on
    trainer = CriticTrainer(
        settings,
        table.rows,
        reference,
        pad,
        model=model,
        args=args,
        train_dataset=table.pairs,
    )
    return trainer, table


def held_out_figures(trainer: CriticTrainer, table: CriticData) -> dict[str, Any]:
    """Return the figures on held-out tasks for `training.json`.

    Keys are `pairs`, `accuracy` (share of pairs whose better side has the larger sum) and
    `advantages`: of three conversations, by id, the advantage of each turn. Without held-out pairs
    it is {"pairs": 0}.
    """
    if not table.held:
        return {"pairs": 0}
    places = list(dict.fromkeys(index for pair in table.held for index in pair))
    log_probs = score_turns(
        trainer.model_wrapped,
        [table.rows[i] for i in places],
        trainer.pad,
        mean=trainer.settings.normalize,
        bf16=trainer.args.bf16,
    )
    gains = {
        index: value.double() - trainer.reference[index].double()
        for index, value in zip(places, log_probs, strict=True)
    }
    right = sum(float(gains[a].sum() > gains[b].sum()) for a, b in table.held)
    shown = {table.names[i]: [round(float(v), 4) for v in gains[i]] for i in places[:3]}
    return {"pairs": len(table.held), "accuracy": right / len(table.held), "advantages": shown}
