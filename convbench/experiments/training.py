"""Train with the options of a command: once, or unless it is done."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from convbench.engine.session import Session
from convbench.errors import UsageError
from convbench.learn.memory import Cards
from convbench.learn.train import TrainResult, load_recipe, split_sets, train
from convbench.models.weights_path import member_weights
from convbench.options.train import TrainOptions
from convbench.schema import ModelConfig
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.store.run import find_run


def train_recipe(options: TrainOptions, session: Session | None = None) -> TrainResult:
    """Train a recipe on the runs of the options (without any, on the newest)."""
    cards = None
    if options.cards is not None:
        if not options.dry_run:
            raise UsageError("--cards: plans for cards that are not here; expected --dry-run too")
        sizes = re.fullmatch(r"([1-9]\d?)x([1-9]\d{0,3})", options.cards)
        if sizes is None:
            found = f"{options.cards!r:.40}"
            raise UsageError(f"--cards: found {found}; expected COUNTxGB, e.g. 4x80")
        cards = Cards(int(sizes[1]), int(sizes[2]) * 10**9)
    return train(
        options.recipe,
        [find_run(path) for path in options.run or (None,)],
        model=options.model,
        judge=options.judge,
        out=options.out,
        launch=options.launch,
        dry_run=options.dry_run,
        cards=cards,
        calls=options.calls,
        session=session,
        specs=options.specs,
        in_process=options.in_process,
    )


def train_once(options: TrainOptions, folder: Path, session: Session) -> Path:
    """Train into a folder unless it holds a finished checkpoint; return the folder."""
    if not Checkpoint(folder).is_finished:
        train_recipe(replace(options, out=folder), session)
    return folder


def check_trainable(options: TrainOptions, policy: ModelConfig | None = None) -> Recipe:
    """Return the recipe of a training after checking, before there is a run, that it could start
    here. Raises SpecError, TrainError, MissingDependency.

    `policy` is the policy of the run to come, if the training starts from its weights.
    """
    recipe = load_recipe(options.recipe, options.specs, split_sets(options.specs.sets)[0])
    if policy is not None and not (options.model or recipe.model):
        member_weights(policy)
    return recipe


def samples_first(recipe: Recipe) -> bool:
    """Return whether a recipe learns from what it samples of a single run."""
    return recipe.trainer == "sweet"
