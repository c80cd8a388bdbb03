"""Train DPO and IPO with TRL's DPOTrainer, on token ids made here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from trl import DPOConfig, DPOTrainer

from convbench.learn import fitting
from convbench.learn.job import Job, PairData, load_rows
from convbench.learn.kernels import free_logits
from convbench.learn.rows import PairRow
from convbench.learn.steps import StepCount

LOSSES = {"dpo": "sigmoid", "ipo": "ipo"}
"""TRL's names of the losses: -log sigmoid of the margin (Rafailov et al. 2023), or its squared
distance from 1 / (2 beta), with a margin of means over tokens (Azar et al. 2024, equation (17))."""


class PreferenceTrainer(DPOTrainer):
    """DPOTrainer on ready-made `prompt_ids`, `chosen_ids` and `rejected_ids`.

    TRL would render the replies with the chat template again, which trims or re-wraps them and
    ends a cut reply with an end-of-turn token.
    """

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no card: `convbench publish` writes it."""


def dpo_trainer(job: Job, rows: Sequence[PairRow], **more: Any) -> PreferenceTrainer:
    """Return TRL's trainer of a job on pairs, with the model loaded; `more` overrides settings of
    DPOConfig.

    Without LoRA the reference model is loaded too. A tokenizer without a pad token gets its end
    token as one.
    """
    lora = job.recipe.lora
    values = {**fitting.training_arguments(job), "max_length": job.max_length}
    values["dataloader_drop_last"] = fitting.drops_last_batch(job, len(rows))
    if not job.recipe.shuffles_rows:
        values["train_sampling_strategy"] = "sequential"
    more = {"loss_type": [LOSSES[job.recipe.pairing.loss]], **more}
    tokenizer = job.chat.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    trainer = PreferenceTrainer(
        model=fitting.load_model(job),
        ref_model=None if lora else fitting.load_model(job),  # TRL's own fails under ZeRO-3
        args=fitting.with_cpu_fsdp(DPOConfig(**values, beta=job.recipe.pairing.beta, **more)),
        train_dataset=Dataset.from_list([row.trainer_fields() for row in rows]),
        processing_class=tokenizer,
        peft_config=fitting.lora_config(lora) if lora else None,
    )
    free_logits(trainer)
    return trainer


def fit(job: Job, pairs: PairData, **more: Any) -> None:
    """Train the recipe's model on pairs and save it in the job's folder; `more` are further
    settings of DPOConfig."""
    fitting.silence_libraries()
    rows = load_rows(job, pairs)
    trainer = dpo_trainer(job, rows.rows, **more)
    fitting.run_training(
        trainer, job, StepCount(len(rows.rows), "pair", job.recipe.fit, drop_last=True)
    )
    fitting.save_checkpoint(trainer, job, pairs, counts=rows.counts)
