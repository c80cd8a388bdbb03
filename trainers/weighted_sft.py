"""Weighted fine-tuning: ReFit, SWiFt and STaR-GATE are this program on other weights.

A policy pi answered each question several times; conversation i has reward r_i >= 0. With h_t what
the policy saw before its token a_t, every learner here minimises

    L = -(1/N) sum_i w_i sum_t log pi(a_t | h_t)

over the tokens of the policy's own turns, where N counts them over one optimiser step, those of
weight 0 included (Mukherjee et al., NeurIPS 2025):

    ReFit      w = r                             equation (5), a lower bound on the value (Lemma 1)
    SWiFt      w = (r - mean) / std              equation (9), over the question's conversations
    STaR-GATE  w = 1, the best conversation only section 3.1

Three conversations about one question, rewards 0, 0 and 1. The policy wrote two tokens, one, and
two; their log pi, and the weight of each token in the rows' column `weights`:

    >>> import torch
    >>> from trainers.losses import nll
    >>> log_pi = torch.tensor([[-1.0, -2.0], [-0.5, 0.0], [-1.5, -0.5]])
    >>> N = 5
    >>> refit = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    >>> round(float(nll(log_pi, refit).sum() / N), 4)
    0.4
    >>> swift = torch.tensor([[-0.5774, -0.5774], [-0.5774, 0.0], [1.1547, 1.1547]])
    >>> round(float(nll(log_pi, swift).sum() / N), 4)
    0.0577
    >>> star_gate = torch.ones(1, 2)  # one row is left, and N is 2
    >>> round(float(nll(log_pi[2:], star_gate).sum() / 2), 4)
    1.0

The recipe says the weights (`weighting`, made into rows by `convbench train`) and another loss than
-w log pi (`loss`, `losses.py`). Everything else is TRL's SFTTrainer: with all weights 1 this is its
loss, gradient and order of rows.

    accelerate launch trainers/weighted_sft.py CHECKPOINT
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling
from trl.trainer.utils import add_fused_lm_head, pad

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a program finds its neighbours

from convbench.errors import TrainError
from convbench.learn.rows import ROWS
from convbench.learn.tokens import load_tokenizer
from convbench.schema.recipe import Loss, Recipe
from trainers.common import adapter_options, frozen_model, load_rows, main, train, trl_arguments
from trainers.losses import a_lol, kl_divergence, load_loss

COLLAPSE_NATS = 1.0
"""Nats a token: if log pi of positively weighted tokens falls by more, the policy has collapsed."""


class WeightedCollator(DataCollatorForLanguageModeling):
    """TRL's collator, with the column `weights`, one weight a token."""

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the batch."""
        batch = super().torch_call(examples)
        weights = [torch.tensor(row["weights"], dtype=torch.float32) for row in examples]
        if self.padding_free:
            weights = [torch.cat(weights)]
        return {**batch, "weights": pad(weights, padding_value=0.0)}


class WeightedSFT(SFTTrainer):
    """TRL's SFTTrainer with a weight at each token."""

    loss_is_scaled_for_ga = True

    def __init__(self, recipe: Recipe, **options: Any) -> None:
        """`options` are SFTTrainer's."""
        super().__init__(**options)
        self.data_collator = WeightedCollator(
            self._tokenizer.pad_token_id, padding_free=self.padding_free
        )
        self.model_accepts_loss_kwargs = True  # so that N is counted
        self.settings, self.loss = recipe.loss, load_loss(recipe.loss)
        self.named = inspect.signature(self.loss).parameters
        if self.loss is a_lol and self.padding_free:
            raise TrainError("fit.packing: found with loss a-lol, which is of whole rows")
        self.is_plain = recipe.loss == Loss()
        inner = self.model if recipe.lora is None else self.model.get_base_model()
        add_fused_lm_head(inner)  # SFTTrainer's own also computes entropies, which nothing reads
        needed = self.settings.anchor == "kl" or "reference" in self.named
        own = needed and recipe.lora is None  # without its adapter the model is its own base
        self.reference = frozen_model(self, str(recipe.model), recipe) if own else None

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return this batch's part of the step's loss, a scalar; `return_outputs` is ignored.

        Data parallel averages gradients over processes where N is a sum over them, hence it is
        multiplied by their number.
        """
        inputs = dict(inputs)
        if self.is_plain and "attention_mask" in inputs:  # rows of weight 0 count in N alone
            rows = inputs["weights"].any(-1)
            rows[0] |= not rows.any()  # every process makes its pass
            inputs = {name: value[rows] for name, value in inputs.items()}
        weights = inputs.pop("weights")[:, 1:]
        if self.aux_loss_enabled:
            inputs["output_router_logits"] = True
        divergence, aux, reference = 0.0, None, None
        if self.settings.anchor == "kl":
            log_probs, divergence = self._with_divergence(model, inputs)
        else:
            outputs = model(**inputs, use_cache=False, fused_lm_head=True)
            log_probs, aux = outputs.log_probs, outputs.aux_loss
        if "reference" in self.named:
            with self.frozen() as base:
                reference = base(**inputs, use_cache=False, fused_lm_head=True).log_probs
        known = {"log_probs": log_probs, "weights": weights, "reference": reference}
        known |= {"low": self.settings.low, "high": self.settings.high}
        losses = self.loss(**{name: known[name] for name in self.named})
        total = losses.sum() + self.settings.anchor_weight * divergence
        self._log_by_sign(log_probs.detach(), weights)
        loss = total / num_items_in_batch * self.accelerator.num_processes
        if aux is not None:  # of a mixture of experts, as TRL adds it
            loss = loss + self.router_aux_loss_coef * aux / self.current_gradient_accumulation_steps
        return loss

    @contextlib.contextmanager
    def frozen(self) -> Any:
        """Yield the model that training started from, without gradient."""
        adapted = self.accelerator.unwrap_model(self.model)
        own = contextlib.nullcontext() if self.reference else adapted.disable_adapter()
        with torch.no_grad(), own:
            yield self.reference or self.model

    def _with_divergence(self, model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
        """Return (log pi of every token, sum over the tokens of KL(pi || base))."""
        logits = labelled_logits(model, inputs)
        with self.frozen() as base:
            base_logits = labelled_logits(base, inputs)
        labels = inputs["labels"][:, 1:]
        own = logits.log_softmax(-1).gather(-1, labels[labels != -100][:, None])[:, 0]
        log_probs = own.new_zeros(labels.shape).masked_scatter(labels != -100, own)
        return log_probs, kl_divergence(logits, base_logits).sum()

    def _log_by_sign(self, log_probs: torch.Tensor, weights: torch.Tensor) -> None:
        """Log the mean log pi of positively and of negatively weighted tokens, in nats a token."""
        for name, sign in (("positive", weights > 0), ("negative", weights < 0)):
            own = torch.stack([(log_probs * sign).sum(), sign.sum().to(log_probs)])
            total, tokens = self.accelerator.gather(own[None]).sum(0).tolist()
            if tokens:
                self._metrics["train"][f"log_pi_{name}"].append(total / tokens)


def labelled_logits(model: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Return the float32 logits before each label that is not -100, shape (labels, vocabulary), row
    by row; other positions are computed only where another row of the batch has a label."""
    chat = {name: value for name, value in inputs.items() if name != "labels"}
    is_label = inputs["labels"][:, 1:] != -100
    places = is_label.any(0).nonzero()[:, 0]
    logits = model(**chat, use_cache=False, logits_to_keep=places).logits
    return logits[is_label[:, places]].float()


class CollapseWarning(TrainerCallback):
    """Warns once if the policy unlearns the positively weighted rows."""

    first: float | None = None
    has_warned = False

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Compare log pi with that of the first entry."""
        log_pi = (logs or {}).get("log_pi_positive")
        if log_pi is None or self.has_warned:
            return
        self.first = log_pi if self.first is None else self.first
        self.has_warned = not log_pi >= self.first - COLLAPSE_NATS  # also if it is no number
        if self.has_warned and state.is_world_process_zero:
            print(
                "warning: the policy has collapsed: log pi of positively weighted tokens fell from "
                f"{self.first:.2f} to {log_pi:.2f} nats; lower fit.learning_rate or fit.epochs, or "
                "set weighting.clip",
                file=sys.stderr,
            )


def make_trainer(
    folder: Path, recipe: Recipe, kind: type[WeightedSFT] = WeightedSFT
) -> WeightedSFT:
    """Return the trainer of a checkpoint's folder, with the model loaded."""
    rows = load_rows(folder / ROWS)
    config = SFTConfig(
        **trl_arguments(folder, recipe, len(rows)),
        dataset_kwargs={"skip_prepare_dataset": True},
        padding_free=recipe.fit.packing,
    )
    trainer = kind(
        recipe,
        model=str(recipe.model),
        args=config,
        train_dataset=rows.select_columns(["input_ids", "labels", "weights"]),
        processing_class=load_tokenizer(str(recipe.model)),
        **adapter_options(recipe),
    )
    trainer.add_callback(CollapseWarning())
    return trainer


def run(folder: Path, recipe: Recipe) -> None:
    """Train on the folder's rows and save the checkpoint there."""
    train(make_trainer(folder, recipe), folder, recipe)


if __name__ == "__main__":
    main(run)
