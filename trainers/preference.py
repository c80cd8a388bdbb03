"""Preference learning on pairs of replies, with TRL's DPOTrainer: DPO, step-dpo, IPO, and SWEET's
policy.

    L = -log sigmoid(beta m),  m = log pi(y+|x)/pi_0(y+|x) - log pi(y-|x)/pi_0(y-|x)

is DPO (Rafailov et al. 2023; `pairing.loss: sigmoid`); `ipo` is (m - 1/(2 beta))^2 with means over
a reply's tokens (Azar et al. 2024, equation (17)); TRL's other losses by their names. The recipe
says which replies are paired (`pairing`, made into rows of token ids by `convbench train`). pi_0 is
computed once, before training.

    accelerate launch trainers/preference.py CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trl import DPOConfig, DPOTrainer

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a program finds its neighbours

from convbench.learn.rows import ROWS
from convbench.learn.sweet import SweetArgs
from convbench.learn.tokens import load_tokenizer
from convbench.schema.recipe import Recipe
from trainers.common import adapter_options, load_rows, main, train, trl_arguments


class Preference(DPOTrainer):
    """DPOTrainer on ready `prompt_ids`, `chosen_ids` and `rejected_ids`.

    TRL would render the replies with the chat template again, which trims or re-wraps them and
    ends a cut reply with an end-of-turn token.
    """

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset


def make_trainer(folder: Path, recipe: Recipe) -> Preference:
    """Return the trainer of a checkpoint's folder, with the model loaded and pi_0 computed."""
    rows = load_rows(folder / ROWS)
    values = {
        "loss_type": [recipe.pairing.loss],
        "beta": recipe.pairing.beta,
        "precompute_ref_log_probs": True,
        **trl_arguments(folder, recipe, len(rows)),
    }
    if recipe.trainer == "sweet":  # the chosen reply's likelihood beside equation (4)
        nll = SweetArgs.from_recipe(recipe).nll
        values |= {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, nll]} if nll else {}
    return Preference(
        model=str(recipe.model),
        args=DPOConfig(**values),
        train_dataset=rows.select_columns(["prompt_ids", "chosen_ids", "rejected_ids"]),
        processing_class=load_tokenizer(str(recipe.model)),
        **adapter_options(recipe),
    )


def run(folder: Path, recipe: Recipe) -> None:
    """Train on the folder's rows and save the checkpoint there."""
    train(make_trainer(folder, recipe), folder, recipe)


if __name__ == "__main__":
    main(run)
