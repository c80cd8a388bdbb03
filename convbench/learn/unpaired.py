"""Train KTO with TRL's KTOTrainer, on token ids made here."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from trl import KTOConfig, KTOTrainer

from convbench.errors import TrainError
from convbench.learn import fitting
from convbench.learn.job import Job, WeightedData, rows_of
from convbench.learn.kernels import lighten
from convbench.learn.rows import Row
from convbench.learn.steps import Steps


class Unpaired(KTOTrainer):
    """KTOTrainer on ready-made `prompt_ids`, `completion_ids`, `KL_completion_ids` and `label`.

    TRL would render the replies with the chat template again, and takes its batches in the order of
    the rows, since those of one batch are each other's estimate of the KL divergence.
    """

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Write no card: `convbench publish` writes it."""


def labelled(rows: Sequence[Row], batch: int, seed: int | None) -> list[dict[str, Any]]:
    """Return KTO's examples, shuffled by seed (None: in order), without rows of weight 0. Within
    each batch the completions are rotated by one for the KL term. Raises TrainError if all have one
    sign."""
    found = [_one(row) for row in rows if row.weight != 0]
    if not any(one["label"] for one in found) or all(one["label"] for one in found):
        raise TrainError(
            "kto: found replies of one sign only; expected desirable and undesirable ones; look "
            "at weighting.center"
        )
    if seed is not None:
        random.Random(seed).shuffle(found)
    if len(found) > 1 and len(found) % batch == 1:
        found.pop()  # as the only one of the last batch it would be its own estimate
    for start in range(0, len(found), batch):
        some = found[start : start + batch]
        for one, other in zip(some, [some[-1], *some[:-1]], strict=True):
            one["KL_completion_ids"] = other["completion_ids"]
    return found


def _one(row: Row) -> dict[str, Any]:
    start = row.tokens.mask.index(1)
    if not all(row.tokens.mask[start:]):
        raise TrainError("data.reasoning: found context; kto learns whole replies; expected loss")
    ids = list(row.tokens.ids)
    return {
        "prompt_ids": ids[:start],
        "completion_ids": ids[start:],
        "label": row.weight > 0,
    }


def trainer_for(job: Job, found: Sequence[dict[str, Any]]) -> Unpaired:
    """Return the trainer of a job on KTO's examples."""
    settings, lora = job.recipe.fit, job.recipe.lora
    values = {**fitting.arguments(job), "max_length": job.longest}
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    enough = len(found) >= processes * settings.batch_size
    values["dataloader_drop_last"] = processes > 1 and enough
    tokenizer = job.chat.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    trainer = Unpaired(
        model=fitting.load_model(job),
        ref_model=None if lora else fitting.load_model(job),  # TRL's own fails under ZeRO-3
        args=fitting.sharded(
            KTOConfig(**values, beta=job.recipe.pairing.beta, train_sampling_strategy="sequential")
        ),
        train_dataset=Dataset.from_list(list(found)),
        processing_class=tokenizer,
        peft_config=fitting.adapter(lora) if lora else None,
    )
    lighten(trainer)
    return trainer


def fit(job: Job, weighted: WeightedData) -> None:
    """Train the recipe's model on desirable and undesirable replies and save it."""
    fitting.quiet()
    settings = job.recipe.fit
    if settings.batch_size < 2:
        raise TrainError(
            "fit.batch_size: found 1; the KL term of KTO is estimated within a batch; expected at "
            "least 2"
        )
    rows = rows_of(job, weighted)
    found = labelled(rows.rows, settings.batch_size, settings.seed if job.recipe.shuffles else None)
    trainer = trainer_for(job, found)
    fitting.train(trainer, job, Steps(len(found), "turn", settings, whole=True))
    counts = {**rows.counts, "desirable": sum(one["label"] for one in found), "rows": len(found)}
    fitting.finish(trainer, job, weighted, counts=counts, flat_tasks=weighted.flat_tasks)
