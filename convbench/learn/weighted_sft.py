"""Weighted fine-tuning with TRL's SFTTrainer: any objective of `losses`, one forward pass a row.

Step loss = (1/N) sum of the objective over the tokens of the policy's turns, where N counts the
unmasked tokens of the whole accumulated window over all processes, those of weight 0 included.
With objective `nll`, w_i * -log pi, it is equations (5) and (9); with all weights 1 TRL's own SFT.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from torch.utils.data import Sampler
from trl import SFTConfig, SFTTrainer
from trl.trainer.utils import add_fused_lm_head, pad

from convbench.learn import fitting
from convbench.learn.job import Job, WeightedData, load_rows
from convbench.learn.kernels import (
    PackedBatch,
    ReferenceStates,
    choose_attention,
    label_states,
    pack_batch,
    prefer_eager_attention,
    score_labels_alone,
)
from convbench.learn.losses import TokenBatch, anchors, load_objective, reference
from convbench.learn.probe import Probe
from convbench.learn.rows import TrainingRow
from convbench.learn.select import Selection
from convbench.learn.steps import StepCount
from convbench.learn.stored_rows import StoredData
from convbench.learn.weights import paper_weights, shape_weights
from convbench.schema.recipe import Loss

COLLAPSE_NATS = 1.0
"""Nats a token: if log pi of positively weighted rows falls by more, the policy has collapsed."""
KNOWN_COLUMNS = ("pi_0", "base")
"""Columns of log-probabilities computed before training: the logging policy's, the base's."""


class RowCollator:
    """Pads rows to one length: `input_ids`, `attention_mask`, `labels`, and `pi_0` and `base` if
    rows have them, of shape (rows, tokens); `weight`, `share` and `plain` of shape (rows,)."""

    def __init__(self, pad_token: int, dtype: torch.dtype = torch.float32) -> None:
        self.pad_token = pad_token
        self.dtype = dtype

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the batch."""
        ids = [torch.tensor(row["input_ids"]) for row in rows]
        labels = [torch.tensor(row["labels"]) for row in rows]
        return {
            "input_ids": pad(ids, padding_value=self.pad_token),
            "attention_mask": pad([torch.ones_like(row) for row in ids], padding_value=0),
            "labels": pad(labels, padding_value=-100),
            "weight": torch.tensor([row["weight"] for row in rows], dtype=self.dtype),
            **{
                name: torch.tensor([row[name] for row in rows], dtype=self.dtype)
                for name in ("share", "plain")
            },
            **{
                name: pad(
                    [torch.tensor(row[name], dtype=self.dtype) for row in rows], padding_value=0
                )
                for name in KNOWN_COLUMNS
                if name in rows[0]
            },
        }


def row_columns(
    rows: Sequence[TrainingRow], known: dict[str, list[list[float]]]
) -> list[dict[str, Any]]:
    """Return the columns of each row as `TrainingRow.trainer_fields` gives them, with each list of
    `known` under its name.

    `known` holds, by column, the log-probabilities of every row's tokens, in the order of the rows.
    """
    table = [row.trainer_fields() for row in rows]
    for name, values in known.items():
        table = [{**fields, name: value} for fields, value in zip(table, values, strict=True)]
    return table


class EpochSampler(Sampler[int]):
    """Sampler of every row once an epoch, in an order that depends only on seed and epoch, then of
    index `n` (an empty row) until the count is a multiple of `multiple`.

    Otherwise accelerate would refill the last batch with rows from the start, counted twice.
    """

    def __init__(self, n: int, multiple: int, seed: int | None, epoch: Callable[[], int]) -> None:
        self.n, self.multiple, self.seed, self.epoch = n, multiple, seed, epoch

    def __len__(self) -> int:
        return math.ceil(self.n / self.multiple) * self.multiple

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.n))
        if self.seed is not None:
            stream = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch())
            order = torch.randperm(self.n, generator=stream).tolist()
        yield from order
        yield from [self.n] * (len(self) - self.n)


class WeightedSFT(SFTTrainer):
    """SFTTrainer whose rows have weights."""

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *,
        rows: Sequence[TrainingRow],
        job: Job,
        tokenizer: Any,
        known: dict[str, list[list[float]]] | None = None,
        base: Any = None,
        **options: Any,
    ) -> None:
        """`rows` as `training_rows` makes them; `known`: by column the log-probabilities of every
        token of every row; `base`: the frozen model of an exact anchor; the rest goes to
        SFTTrainer."""
        self.job = job
        self.rows = rows
        self.objective = load_objective(job.recipe.loss)
        self.base = base
        self.is_float64 = (
            fitting.training_precision(job) == "fp64"
        )  # TRL's fused head computes in float32
        pad_token = tokenizer.pad_token_id
        pad_token = tokenizer.eos_token_id if pad_token is None else pad_token
        empty: dict[str, Any] = {"input_ids": [pad_token] * 2, "labels": [-100] * 2}
        empty |= dict.fromkeys(("weight", "share", "plain"), 0.0)
        empty |= dict.fromkeys(known or {}, [0.0] * 2)
        super().__init__(
            train_dataset=Dataset.from_list([*row_columns(rows, known or {}), empty]),
            data_collator=RowCollator(
                pad_token, torch.float64 if self.is_float64 else torch.float32
            ),
            processing_class=tokenizer,
            **options,
        )
        self.model.config.use_cache = False
        self.tally = torch.zeros(6, device=self.args.device)
        self.first_log_pi: float | None = None
        self.warned = False
        self.probe = Probe(self) if job.recipe.fit.probe else None
        self.attention: str | None = None
        self.labels_alone = False
        if (
            not self.is_float64
        ):  # SFTTrainer's own also computes entropies, which nothing here reads
            inner = self.model.get_base_model() if is_peft_model(self.model) else self.model
            add_fused_lm_head(inner, outputs=("log_probs",))
            if fitting.on_cpu():
                self.labels_alone = score_labels_alone(inner)
                for model in (inner, *([] if self.base is None else [self.base])):
                    self._prefer_eager(model)

    def _prefer_eager(self, model: Any) -> None:
        fit = self.job.recipe.fit
        if fitting.training_precision(self.job) == "bf16":
            longest = max(len(row.tokens.ids) for row in self.rows)
            prefer_eager_attention(
                model, fit.batch_size, longest, checkpointed=fit.gradient_checkpointing
            )

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        fit = self.job.recipe.fit
        return EpochSampler(
            len(self.rows),
            self.args.world_size * self.args.per_device_train_batch_size,
            fit.seed if self.job.recipe.shuffles_rows else None,
            lambda: math.floor((self.state.epoch or 0.0) + 1e-9),
        )

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: Any) -> torch.Tensor:
        """Return N: tokens (or conversations) of the accumulated window over all processes."""
        if self.job.recipe.weighting.over == "batch":
            self._shape_weights(batch_samples, device)
        counts = [self._count_items(batch) for batch in batch_samples]
        dtype = fitting.counting_dtype(device)
        local = torch.stack([count.to(dtype) for count in counts]).sum() if counts else None
        total = torch.zeros((), dtype=dtype) if local is None else local
        return self.accelerator.reduce(total.to(device), "sum").clamp(min=1)

    def _count_items(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return what a batch adds to N."""
        kind = self.job.recipe.fit.normalize
        if kind == "tokens":
            return batch["labels"][:, 1:].ne(-100).sum()
        return batch["share"].sum() if kind == "conversations" else (batch["share"] > 0).sum()

    def _shape_weights(self, batches: list[Any], device: Any) -> None:
        """Replace the rewards of one optimiser step's rows by weights, over all processes."""
        local_rows = torch.cat(
            [torch.stack([b["weight"], b["share"], b["plain"]]) for b in batches], dim=1
        )
        rows = self.accelerator.gather(local_rows.T.contiguous().to(device))
        is_rewarded = (rows[:, 1] > 0) & (rows[:, 2] == 0)
        shaped_weights = shape_weights(rows[is_rewarded, 0].tolist(), self.job.recipe.weighting)
        weights = rows[:, 0] * (rows[:, 2] > 0)
        weights[is_rewarded] = weights.new_tensor([weight or 0.0 for weight in shaped_weights])
        first = self.args.process_index * local_rows.shape[1]
        for batch in batches:
            last = first + len(batch["weight"])
            batch["weight"] = weights[first:last].to(batch["weight"])
            first = last

    def log_probs(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return log pi of every label, shape (rows, tokens - 1), 0 where masked."""
        if self.is_float64:
            return label_log_probs(self.label_logits(model, inputs), inputs["labels"])
        packs = self._pack_inputs(model, inputs)
        packed_inputs = inputs if packs is None else packs.inputs
        scores = model(**packed_inputs, use_cache=False, fused_lm_head=True).log_probs
        return scores if packs is None else packs.unpack(scores)

    def label_logits(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the logits before every label, shape (rows, tokens - 1, vocabulary), in float32 or
        float64; masked ones are not 0."""
        packs = self._pack_inputs(model, inputs)
        packed_inputs = inputs if packs is None else packs.inputs
        rest = {name: value for name, value in packed_inputs.items() if name != "labels"}
        logits = model(**rest, use_cache=False).logits[:, :-1]
        logits = logits if self.is_float64 else logits.float()
        return logits if packs is None else packs.unpack(logits)

    def _pack_inputs(self, model: Any, inputs: dict[str, Any]) -> PackedBatch | None:
        """Return the batch packed, or None without `fit.packing`. Raises TrainError if the model
        does not keep rows of a pack apart, which is tested once on the model as it is trained."""
        if not self.job.recipe.fit.packing:
            return None
        if self.attention is None:
            inner = self.model.get_base_model() if is_peft_model(self.model) else self.model
            self.attention = choose_attention(model, inner, inputs["input_ids"])
            if self.base is not None:
                self.base.set_attn_implementation(self.attention)
        return pack_batch(inputs, self.attention)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | None = None,
    ) -> Any:
        """Return this batch's part of the step loss, a scalar; `return_outputs` is ignored.

        Data parallel averages gradients over processes where N is a sum over them, hence it is
        multiplied by their number.
        """
        inputs = dict(inputs)
        if self.probe is not None:
            self.probe.record_gradient(model)
        if num_items_in_batch is None:
            num_items_in_batch = self._get_num_items_in_batch([inputs], self.args.device)
        inputs = self._drop_zero_weight(inputs)
        weight, share, unrewarded = (inputs.pop(name) for name in ("weight", "share", "plain"))
        known = {name: inputs.pop(name)[:, 1:] for name in KNOWN_COLUMNS if name in inputs}
        mask = inputs["labels"][:, 1:].ne(-100)
        loss = self.job.recipe.loss
        log_probs, divergence = self._score_labels(model, inputs)
        token_losses = self.objective.loss(
            TokenBatch(log_probs, mask, weight, known.get("pi_0")), loss
        )
        if unrewarded.any():  # rows without a reward are learnt by their likelihood alone
            token_losses = torch.where(
                unrewarded[:, None] > 0, -weight[:, None] * log_probs, token_losses
            )
        if loss.has_anchor:
            token_losses = token_losses + loss.anchor_weight * self._anchor_loss(
                log_probs, divergence, known.get("base")
            ) * (mask & (share[:, None] > 0))
        if self.job.recipe.fit.normalize == "lengths":
            token_losses = token_losses / mask.sum(-1, keepdim=True).clamp(min=1)
        total = token_losses.sum()
        self._add_tally(log_probs.detach(), inputs["labels"], weight, share)
        if self.probe is not None:
            self.probe.record_start(inputs, log_probs.detach())
        return total / num_items_in_batch.to(total) * self.accelerator.num_processes

    def _drop_zero_weight(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Drop rows of weight 0, which have no gradient (they still count in N). Keep all rows if
        there is an anchor, another objective than nll, or a probe without its first values."""
        weight, loss = inputs["weight"], self.job.recipe.loss
        if loss.has_anchor or loss.name != "nll" or (self.probe and self.probe.base is None):
            return inputs
        rows = weight.nonzero()[:, 0] if weight.any() else [0]  # every process makes its pass
        return {name: value[rows] for name, value in inputs.items()}

    def _score_labels(self, model: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, Any]:
        """Return (log pi of every label, divergence from the base or None without an exact anchor),
        both of shape (rows, tokens - 1)."""
        if self.base is None:
            return self.log_probs(model, inputs), None
        kind = self.job.recipe.loss.anchor
        if not self.labels_alone:
            logits = self.label_logits(model, inputs)
            with torch.no_grad():
                base_logits = self.label_logits(self.base, inputs)
            return label_log_probs(logits, inputs["labels"]), anchors.kl_divergence(
                kind, logits, base_logits
            )
        packs = self._pack_inputs(model, inputs)
        packed_inputs = inputs if packs is None else packs.inputs
        with torch.no_grad():
            base_logits = label_states(self.base, packed_inputs)
        reference_states = ReferenceStates(kind, base_logits, self.base.get_output_embeddings())
        output = model(
            **packed_inputs, use_cache=False, fused_lm_head=True, beside=reference_states
        )
        scores = output.log_probs, output.divergence
        return scores if packs is None else (packs.unpack(scores[0]), packs.unpack(scores[1]))

    def _anchor_loss(self, log_probs: Any, divergence: Any, base: Any) -> Any:
        """Return the anchor's loss of every token, shape (rows, tokens - 1)."""
        if divergence is not None:
            return divergence
        return anchors.anchor_penalty(self.job.recipe.loss.anchor, log_probs, base)

    def _add_tally(self, log_probs: Any, labels: Any, weight: Any, share: Any) -> None:
        """Add log pi, conversations and tokens to the tally, by sign of the weight."""
        rows = log_probs.sum(-1).float()
        tokens = labels[:, 1:].ne(-100).sum(-1).float()
        for offset, sign in ((0, weight > 0), (3, weight < 0)):
            sums = [(part.float() * sign).sum() for part in (rows, share, tokens)]
            self.tally[offset : offset + 3] += torch.stack(sums)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with the loss, also the means since the last entry: `log_pi_positive`,
        `log_pi_negative` and `log_ratio`.

        The first two are log pi of positively and negatively weighted conversations, in nats a
        conversation; the third is the probe's mean log(pi / pi_0). One without a value is left out.
        Print a warning once if the policy collapses. Every process must call it.
        """
        if "loss" in logs:
            total = self.accelerator.reduce(self.tally, "sum").tolist()
            self.tally.zero_()
            for offset, name in ((0, "positive"), (3, "negative")):
                if total[offset + 1] > 0:
                    logs[f"log_pi_{name}"] = total[offset] / total[offset + 1]
            if total[2] > 0:
                self._warn_of_collapse(total[0] / total[2], logs["loss"])
            later = self.state.global_step > 1
            ratio = self.probe.mean_log_ratio() if self.probe is not None and later else None
            if ratio is not None:
                logs["log_ratio"] = ratio
        super().log(logs, start_time)

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no card: `convbench publish` writes it."""

    def _warn_of_collapse(self, log_pi: float, loss: float) -> None:
        """Warn once if the policy unlearns the positively weighted rows."""
        self.first_log_pi = log_pi if self.first_log_pi is None else self.first_log_pi
        if (
            has_collapsed(self.first_log_pi, log_pi, loss)
            and not self.warned
            and self.is_world_process_zero()
        ):
            self.warned = True
            print(
                "warning: the policy has collapsed: log pi of the rewarded conversations fell from "
                f"{self.first_log_pi:.2f} to {log_pi:.2f} nats per token (loss {loss:.3g}); lower "
                "fit.learning_rate or fit.epochs, or set weighting.clip",
                file=sys.stderr,
            )


def label_log_probs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return log pi of every label from the logits before it, shape (rows, tokens - 1), 0 where
    masked."""
    labels = labels[:, 1:]
    log_probs = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return log_probs.masked_fill(labels == -100, 0)


def has_collapsed(first_log_pi: float, log_pi: float, loss: float) -> bool:
    """Return True if log pi of positively weighted rows fell by more than 1 nat a token, or if it
    or the loss is not finite."""
    return (
        not (math.isfinite(log_pi) and math.isfinite(loss)) or log_pi < first_log_pi - COLLAPSE_NATS
    )


def weighted_trainer(job: Job, rows: Sequence[TrainingRow]) -> WeightedSFT:
    """Return the trainer of a job on rows, with the model loaded and the log-probabilities that the
    objective needs computed."""
    lora, loss = job.recipe.lora, job.recipe.loss
    args = fitting.with_cpu_fsdp(  # before the model: by it ZeRO-3 loads in shards
        SFTConfig(**fitting.training_arguments(job), dataset_kwargs={"skip_prepare_dataset": True})
    )
    needs_base = anchors.needs_base(loss) or scores_first(loss)
    model = fitting.load_model(job, sharded=fitting.can_gather() or not needs_base)
    return WeightedSFT(
        rows=rows,
        job=job,
        tokenizer=job.chat.tokenizer,
        model=model,
        known=initial_log_probs(job, rows, model),
        base=load_frozen_model(job) if anchors.needs_model(loss) else None,
        args=args,
        peft_config=fitting.lora_config(lora) if lora else None,
    )


def scores_first(loss: Loss) -> bool:
    """Return whether an objective needs log pi_0 by the model as it is before the training."""
    return load_objective(loss).needs_pi_0


def initial_log_probs(
    job: Job, rows: Sequence[TrainingRow], model: Any
) -> dict[str, list[list[float]]]:
    """Return the log-probabilities of every row's tokens that the objective and its anchor need, by
    column.

    Columns are `pi_0` and `base`; those not needed are left out. They are computed with the model,
    which is moved to the accelerator.
    """
    loss = job.recipe.loss
    by_column: dict[str, list[list[float]]] = {}
    needed = scores_first(loss)
    if anchors.needs_base(loss) or needed:
        with fitting.gathered_weights(model):
            if not fitting.on_cpu():
                model.to(fitting.local_device())
            base_log_probs = reference.log_probs(
                model, rows, bf16=fitting.training_precision(job) == "bf16"
            )
        by_column |= {"base": base_log_probs} if anchors.needs_base(loss) else {}
        by_column |= {"pi_0": base_log_probs} if needed else {}
    return by_column


def load_frozen_model(job: Job) -> Any:
    """Return the model that training starts from, frozen."""
    model = fitting.load_model(job, trained=False).eval().requires_grad_(False)
    return model if fitting.on_cpu() else model.to(fitting.local_device())


def fit(job: Job, weighted: WeightedData, *, compares_weightings: bool = False) -> None:
    """Train the recipe's model on weighted conversations and save it in the job's folder.

    `compares_weightings` also measures the first step's gradient under ReFit's and SWiFt's weights,
    if the rewards are those of conversations and the loss is these learners' own.
    """
    fitting.silence_libraries()
    rows = load_rows(job, weighted)
    trainer = weighted_trainer(job, rows.rows)
    recipe = job.recipe
    compares_weightings &= recipe.weighting.reward == "conversation" and recipe.loss == Loss()
    if trainer.probe is not None and compares_weightings:
        first = trainer.is_world_process_zero()
        trainer.probe.weights = paper_weights(logged_data(job, weighted)) if first else {}
    fitting.run_training(
        trainer, job, StepCount(len(rows.rows), job.recipe.data.unit, job.recipe.fit)
    )
    gradient = trainer.probe.gradient if trainer.probe is not None else None
    fitting.save_checkpoint(
        trainer,
        job,
        weighted,
        counts=rows.counts,
        flat_tasks=weighted.flat_tasks,
        **({"gradient": gradient} if gradient else {}),
    )


def logged_data(job: Job, weighted: WeightedData) -> Selection:
    """Return the logged conversations of the data; they are read again if only rows are stored."""
    return job.log() if isinstance(weighted, StoredData) else weighted.selection
