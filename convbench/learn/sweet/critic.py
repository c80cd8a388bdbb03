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
from convbench.learn.logged import Logged
from convbench.learn.steps import Steps
from convbench.learn.sweet.pairs import CriticRow, Sweet, Trajectories, critic_rows, whole_weights
from convbench.models.shape import Shape

BUDGET = 16_384
"""Most positions of a batch that is scored."""
FLOAT = 4
"""Bytes of a float32 number."""


@dataclass(frozen=True)
class Rows:
    """Sizes of one batch of rows, padded to the longest."""

    lengths: tuple[int, ...]
    """Tokens of each row."""
    said: tuple[int, ...]
    """Policy tokens of each row."""

    @property
    def positions(self) -> int:
        """Positions of the padded batch, rows times the longest."""
        return len(self.lengths) * max(self.lengths, default=0)


@dataclass(frozen=True)
class Peak:
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


def scoring(shape: Shape, rows: Rows, width: int = FLOAT) -> Peak:
    """Return the peak memory of scoring a batch without gradients; `width`: bytes of a number of
    weights and activations (2 for bf16).

    The logits of all positions exist at once, and in addition those of one row's own tokens: a
    copy, its float32 version (if it is not float32 already) and its logarithms.
    """
    own = max(rows.said, default=0) * shape.words
    floats = FLOAT if width == FLOAT else 2 * FLOAT
    logits = rows.positions * shape.words * width + own * (width + floats)
    # The residual stream and one layer's tensors: its input's norm, gate, up and their product.
    layer = rows.positions * (3 * shape.hidden + 3 * shape.wide) * width
    hidden = rows.positions * 2 * shape.hidden * width
    weights = shape.weights * width
    inside, last = (layer, 0.0) if layer > hidden + logits else (hidden, logits)
    return Peak(float(weights), 0.0, float(inside), float(last))


def training(
    shape: Shape,
    rows: Rows,
    *,
    width: int = FLOAT,
    checkpointing: bool = False,
    shards: int = 1,
) -> Peak:
    """Return the peak memory of one micro-batch's training step of all weights with AdamW.

    `rows` are those of a pair, both sides. Weights, gradients and two moments are float32, split
    over `shards` processes (ZeRO-3); with `width` 2 a bf16 copy computes. The peak is at the start
    of the backward pass: the layers' activations, the saved logarithms of all own tokens, and the
    gradient of the logits, once summed and once for the current row.
    """
    fixed = shape.weights * 3 * FLOAT / shards
    weights = shape.weights * FLOAT / shards + (shape.weights * width if width != FLOAT else 0)
    kept = 6 * shape.hidden + 3 * shape.queries + 2 * shape.keys + 4 * shape.wide
    every = rows.positions * width
    inside = every * (shape.layers * shape.hidden + kept if checkpointing else shape.layers * kept)
    own = sum(rows.said) * shape.words
    logits = 2 * rows.positions * shape.words * width + own * FLOAT
    return Peak(float(weights), fixed, float(inside), float(logits))


def batch_of(longest: Sequence[tuple[int, int]], tokens: int) -> Rows:
    """Return the first batch that scoring makes of rows (length, own tokens), longest first, within
    a budget of positions; it holds at least one row if there is any."""
    order = sorted(longest, reverse=True)
    if not order:
        return Rows((), ())
    taken = order[: max(1, tokens // max(1, order[0][0]))]
    return Rows(tuple(n for n, _ in taken), tuple(said for _, said in taken))


def padded(rows: Sequence[Sequence[CriticRow]], pad: int) -> dict[str, torch.Tensor]:
    """Return trajectories as one batch: `input_ids`, `attention_mask` and `turns`, each of shape
    (rows, longest). `turns` numbers the policy turns across all trajectories (-1: not the policy);
    `owner`, shape (turns,), is the trajectory of each turn."""
    flat = [row for trajectory in rows for row in trajectory]
    shape = (len(flat), max(len(row.ids) for row in flat))
    ids = torch.full(shape, pad)
    mask, turns = torch.zeros(shape, dtype=torch.long), torch.full(shape, -1)
    owner: list[int] = []
    at = 0
    for number, trajectory in enumerate(rows):
        first = len(owner)
        for row in trajectory:
            ids[at, : len(row.ids)] = torch.tensor(row.ids)
            mask[at, : len(row.ids)] = 1
            marks = torch.tensor(row.turns)
            turns[at, : len(row.ids)] = torch.where(marks >= 0, marks + first, marks)
            at += 1
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
    on = marks >= 0
    log_probs = torch.cat(
        [_said(logits[i, :-1][on[i]], batch["input_ids"][i, 1:][on[i]]) for i in range(len(logits))]
    )
    count = len(batch["owner"])
    zero = log_probs.new_zeros(count)
    sums = zero.index_add(0, marks[on], log_probs)
    if not mean:
        return sums
    tokens = zero.index_add(0, marks[on], torch.ones_like(log_probs))
    if mean == "trajectory":
        owner = batch["owner"]
        whole = zero.new_zeros(int(owner.max()) + 1).index_add(0, owner, tokens)
        tokens = whole[owner]
    return sums / tokens.clamp(min=1)


def _said(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return log pi of one row's policy tokens, shape (tokens,), from their logits alone: float32
    numbers of a whole batch would be the largest thing in memory (vocabulary x positions)."""
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return exact.log_softmax(-1).gather(-1, tokens[:, None]).squeeze(-1)


def pair_loss(better: torch.Tensor, worse: torch.Tensor, beta: float) -> torch.Tensor:
    """Return -log sigma(beta sum_t A+ - beta sum_t A-), equation (2), of sums (pairs,)."""
    return -logsigmoid(beta * (better - worse))


class Critic(Trainer):
    """Trainer on pairs of trajectories; a dataset row is (chosen, rejected), indices in `rows`."""

    def __init__(
        self,
        settings: Sweet,
        rows: Sequence[Sequence[CriticRow]],
        reference: Any,
        pad: int,
        **more: Any,
    ) -> None:
        """`reference[i]` is log pi_ref of the turns of trajectory i under the starting model."""
        super().__init__(data_collator=self._collate, **more)
        self.settings, self.rows, self.reference, self.pad = settings, rows, reference, pad
        self.model_accepts_loss_kwargs = False

    def _collate(self, pairs: Sequence[tuple[int, int]]) -> dict[str, torch.Tensor]:
        order = [better for better, _ in pairs] + [worse for _, worse in pairs]
        batch = padded([self.rows[i] for i in order], self.pad)
        return {**batch, "reference": torch.cat([self.reference[i] for i in order])}

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        """Return the mean loss of the pairs, plus `critic_nll` times the chosen turns' mean token
        NLL."""
        reference = inputs.pop("reference")
        log_probs = turn_log_probs(model, inputs, mean=self.settings.normalize)
        sums = advantages(log_probs, reference, inputs["owner"])
        better, worse = sums.chunk(2)
        loss = pair_loss(better, worse, self.settings.beta).mean()
        if self.settings.critic_nll:
            loss = loss + self.settings.critic_nll * self._nll(log_probs, inputs)
        return (loss, {"advantages": sums}) if return_outputs else loss

    def _nll(self, log_probs: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        chosen = inputs["owner"] < (inputs["owner"].max() + 1) // 2
        if self.settings.normalize == "trajectory":
            return -log_probs[chosen].sum() / ((inputs["owner"].max() + 1) // 2)
        if self.settings.normalize:
            return -log_probs[chosen].mean()
        marks = inputs["turns"][:, 1:]
        tokens = chosen[marks.clamp(min=0)] & (marks >= 0)
        return -log_probs[chosen].sum() / tokens.sum()


def advantages(
    log_probs: torch.Tensor, reference: torch.Tensor, owner: torch.Tensor
) -> torch.Tensor:
    """Return sum_t A of every trajectory, shape (trajectories,), from its turns' log pi."""
    zero = log_probs.new_zeros(int(owner.max()) + 1)
    return zero.index_add(0, owner, log_probs - reference.to(log_probs))


def device() -> torch.device:
    """Return the accelerator of this process, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def scores(
    model: Any,
    rows: Sequence[Sequence[CriticRow]],
    pad: int,
    *,
    mean: Mean,
    bf16: bool = False,
    tokens: int = BUDGET,
) -> list[torch.Tensor]:
    """Return log pi of the turns of each trajectory, without gradients; `bf16`: under autocast,
    as the training computes them. Batches hold at most `tokens` positions, padding counted, or one
    trajectory; the longest come first, so that memory runs out at once or not at all."""
    by_place: dict[int, torch.Tensor] = {}
    where = next(model.parameters()).device
    training = model.training
    model.eval()
    for places in in_budget(rows, tokens):
        batch = padded([rows[i] for i in places], pad)
        moved = {name: value.to(where) for name, value in batch.items()}
        with torch.no_grad(), torch.autocast(where.type, torch.bfloat16, enabled=bf16):
            values = turn_log_probs(model, moved, mean=mean).cpu()
        for number, place in enumerate(places):
            by_place[place] = values[batch["owner"] == number]
    model.train(training)
    return [by_place[i] for i in range(len(rows))]


def shared_scores(
    model: Any, rows: Sequence[Sequence[CriticRow]], pad: int, *, mean: Mean, bf16: bool = False
) -> list[torch.Tensor]:
    """Return log pi of the turns of each trajectory, computed by all processes of a launcher: rows
    are dealt out by length for equal work, and every process gets all values."""
    from accelerate import PartialState

    state = PartialState()
    if state.num_processes == 1:
        return scores(model, rows, pad, mean=mean, bf16=bf16)
    order = sorted(
        range(len(rows)), key=lambda i: -max((len(row.ids) for row in rows[i]), default=0)
    )
    own = order[state.process_index :: state.num_processes]
    found = scores(model, [rows[i] for i in own], pad, mean=mean, bf16=bf16)
    told: list[Any] = [None] * state.num_processes
    torch.distributed.all_gather_object(told, list(zip(own, found, strict=True)))
    whole = dict(pair for part in told for pair in part)
    return [whole[i] for i in range(len(rows))]


def centred(
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
    found: dict[int, torch.Tensor] = {}
    where = next(model.parameters()).device
    for places in in_budget(rows, tokens):
        batch = {k: v.to(where) for k, v in padded([rows[i] for i in places], pad).items()}
        asked = {name: batch[name] for name in ("input_ids", "attention_mask")}
        with torch.no_grad():
            logits = [one(**asked).logits for one in (model, reference)]
        marks = batch["turns"][:, 1:]
        on = marks >= 0
        values = []
        for i in range(len(marks)):
            now, then = (one[i, :-1][on[i]].float().log_softmax(-1) for one in logits)
            ratio = now - then
            said = ratio.gather(-1, batch["input_ids"][i, 1:][on[i]][:, None]).squeeze(-1)
            values.append(said - (then.exp() * ratio).sum(-1))
        flat, turns = torch.cat(values).double(), marks[on]
        sums = flat.new_zeros(len(batch["owner"])).index_add(0, turns, flat)
        if mean:
            sums /= torch.bincount(turns, minlength=len(sums)).clamp(min=1)
        for number, place in enumerate(places):
            found[place] = sums[batch["owner"] == number].cpu()
    return [found[i] for i in range(len(rows))]


def in_budget(rows: Sequence[Sequence[CriticRow]], tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices of trajectories, the longest first, of at most `tokens` positions
    (rows times the longest of them)."""
    longest = [max((len(row.ids) for row in each), default=0) for each in rows]
    batch: list[int] = []
    for place in sorted(range(len(rows)), key=lambda i: -longest[i]):
        count = sum(len(rows[i]) for i in batch) + len(rows[place])
        if batch and count * longest[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(place)
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
    def of(cls, job: Job, found: Trajectories, settings: Sweet) -> CriticData:
        """Return the tokenised pairs: to train on, and held out. Raises TrainError if the limit on
        length leaves none to train on."""
        table, places = cls(), dict[str, int]()

        def place(item: Logged) -> int:
            name = item.conversation_id
            if name not in places:
                places[name] = len(table.rows)
                table.names.append(name)
                table.rows.append(critic_rows(job.run.manifest.protocol, item, job.chat, settings))
            return places[name]

        for pairs, items in ((table.pairs, found.items), (table.held, found.held)):
            for better, worse in items:
                pair = place(better), place(worse)
                if job.longest is not None and table.longest(pair) > job.longest:
                    table.dropped += 1
                else:
                    pairs.append(pair)
        if not table.pairs:
            raise TrainError(f"data.max_length {job.longest} leaves no pair; raise it")
        return table

    def longest(self, pair: tuple[int, int]) -> int:
        """Return the length of a pair's longest row in tokens."""
        return max(len(row.ids) for i in pair for row in self.rows[i])


def fit(job: Job, found: Trajectories) -> None:
    """Train the recipe's model as the critic (with nothing hidden, as the policy) and save it."""
    trainer, table = trainer_for(job, found)
    steps = Steps(len(table.pairs), "pair of conversations", job.recipe.fit)
    fitting.train(trainer, job, steps)
    fitting.finish(
        trainer,
        job,
        cast(Any, found),
        counts={"pairs": len(table.pairs), "pairs dropped": table.dropped},
        held_out=held_out(trainer, table),
    )


def trainer_for(job: Job, found: Trajectories) -> tuple[Critic, CriticData]:
    """Return (the critic's trainer, the rows it trains on).

    The reference's values are computed with the starting model before a launcher shards it.
    """
    whole_weights(job)
    lora = job.recipe.lora
    fitting.quiet()
    settings = Sweet.of(job.recipe.args, job.recipe.name)
    table = CriticData.of(job, found, settings)
    model = fitting.load_model(job).to(device())
    pad = job.chat.tokenizer.pad_token_id or 0
    bf16 = fitting.precision(job) == "bf16"
    values = fitting.arguments(job, trl=False)
    # accelerate would refill the last batch with pairs of the first and count these twice
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    enough = len(table.pairs) >= processes * job.recipe.fit.batch_size
    values["dataloader_drop_last"] = processes > 1 and enough
    args = fitting.sharded(
        TrainingArguments(**values)
    )  # these say that there are several processes
    reference = shared_scores(model, table.rows, pad, mean=settings.normalize, bf16=bf16)
    if lora is not None:
        from peft import get_peft_model

        model = get_peft_model(model, fitting.adapter(lora))
        model.enable_input_require_grads()  # or gradient checkpointing would find none to pass on
    trainer = Critic(
        settings,
        table.rows,
        reference,
        pad,
        model=model,
        args=args,
        train_dataset=table.pairs,
    )
    return trainer, table


def held_out(trainer: Critic, table: CriticData) -> dict[str, Any]:
    """Return the figures on held-out tasks for `training.json`: pairs, pair accuracy, and the
    advantages of three trajectories."""
    if not table.held:
        return {"pairs": 0}
    places = list(dict.fromkeys(place for pair in table.held for place in pair))
    now = scores(
        trainer.model_wrapped,
        [table.rows[i] for i in places],
        trainer.pad,
        mean=trainer.settings.normalize,
        bf16=trainer.args.bf16,
    )
    gains = {
        place: value.double() - trainer.reference[place].double()
        for place, value in zip(places, now, strict=True)
    }
    right = sum(float(gains[a].sum() > gains[b].sum()) for a, b in table.held)
    shown = {table.names[i]: [round(float(v), 4) for v in gains[i]] for i in places[:3]}
    return {"pairs": len(table.held), "accuracy": right / len(table.held), "advantages": shown}
