"""Train KTO with TRL's KTOTrainer, on token ids made here."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from convbench.errors import TrainError
from convbench.learn import fitting
from convbench.learn.job import Job, WeightedData, load_rows
from convbench.learn.kernels import free_logits
from convbench.learn.rows import TrainingRow
from convbench.learn.steps import StepCount


class UnpairedTrainer(KTOTrainer):
    """KTOTrainer on ready-made `prompt_ids`, `completion_ids`, `KL_completion_ids` and `label`.

    TRL would render the replies with the chat template again, and takes its batches in the order of
    the rows, since those of one batch are each other's estimate of the KL divergence.
    """

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no card: `convbench publish` writes it."""


def label_rows(rows: Sequence[TrainingRow], batch: int, seed: int | None) -> list[dict[str, Any]]:
    """Return KTO's examples: `prompt_ids`, `completion_ids`, `label` (True for a weight above 0)
    and `KL_completion_ids`.

    They are shuffled by `seed` (None: in order); rows of weight 0 are left out, and so is one that
    would be alone in the last batch. `KL_completion_ids` are the completions of each batch, rotated
    by one. Raise TrainError if all have one sign, or if there are none, and for rows whose policy
    tokens are not one final stretch.
    """
    examples = [_label_row(row) for row in rows if row.weight != 0]
    if seed is not None:
        random.Random(seed).shuffle(examples)
    if len(examples) > 1 and len(examples) % batch == 1:
        examples.pop()  # as the only one of the last batch it would be its own estimate
    if not any(example["label"] for example in examples) or all(
        example["label"] for example in examples
    ):
        raise TrainError(
            "kto: found replies of one sign only; expected desirable and undesirable ones; check "
            "weighting.center"
        )
    for start in range(0, len(examples), batch):
        batch_examples = examples[start : start + batch]
        for example, rotated in zip(
            batch_examples, [batch_examples[-1], *batch_examples[:-1]], strict=True
        ):
            example["KL_completion_ids"] = rotated["completion_ids"]
    return examples


def _label_row(row: TrainingRow) -> dict[str, Any]:
    start = row.tokens.mask.index(1)
    if not all(row.tokens.mask[start:]):
        raise TrainError(
            "data.reasoning: found context; kto trains on full replies, reasoning included; "
            "expected loss"
        )
    ids = list(row.tokens.ids)
    return {
        "prompt_ids": ids[:start],
        "completion_ids": ids[start:],
        "label": row.weight > 0,
    }


def kto_trainer(job: Job, examples: Sequence[dict[str, Any]]) -> UnpairedTrainer:
    """Return TRL's trainer of a job on KTO's examples, in order, with the model loaded.

    Without LoRA the reference model is loaded too. A tokenizer without a pad token gets its end
    token as one.
    """
    lora = job.recipe.lora
    values = {**fitting.training_arguments(job), "max_length": job.max_length}
    values["dataloader_drop_last"] = fitting.drops_last_batch(job, len(examples))
    tokenizer = job.chat.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    trainer = UnpairedTrainer(
        model=fitting.load_model(job),
        ref_model=None if lora else fitting.load_model(job),  # TRL's own fails under ZeRO-3
        args=fitting.with_cpu_fsdp(
            KTOConfig(**values, beta=job.recipe.pairing.beta, train_sampling_strategy="sequential")
        ),
        train_dataset=Dataset.from_list(list(examples)),
        processing_class=tokenizer,
        peft_config=fitting.lora_config(lora) if lora else None,
    )
    free_logits(trainer)
    return trainer


def fit(job: Job, weighted: WeightedData) -> None:
    """Train the recipe's model on desirable and undesirable replies and save it in the job's
    folder.

    Raise TrainError for a batch size of 1, or if all replies have one sign.
    """
    fitting.silence_libraries()
    settings = job.recipe.fit
    if settings.batch_size < 2:
        raise TrainError(
            "fit.batch_size: found 1; the KL term of KTO is estimated within a batch; expected at "
            "least 2"
        )
    rows = load_rows(job, weighted)
    examples = label_rows(
        rows.rows, settings.batch_size, settings.seed if job.recipe.shuffles_rows else None
    )
    trainer = kto_trainer(job, examples)
    fitting.run_training(trainer, job, StepCount(len(examples), "turn", settings, drop_last=True))
    counts = {
        **rows.counts,
        "desirable": sum(example["label"] for example in examples),
        "rows": len(examples),
    }
    fitting.save_checkpoint(trainer, job, weighted, counts=counts, flat_tasks=weighted.flat_tasks)
