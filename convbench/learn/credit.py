"""Go through SWEET's stages, and credit every turn of the run by its critic.

Every stage leaves its result in the checkpoint's folder, and is not done again:

    critic/            the trained critic, a checkpoint
    candidates.jsonl   what was sampled at the policy's turns
    rank/              rows for `trainers/rank.py`, which writes scores.jsonl: the critic's
                       advantage of each candidate, and of each turn that was logged
    rows/              pairs of candidates, for `trainers/preference.py`
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from convbench.errors import TrainError
from convbench.learn.launch import Context, fit_rows, start_program, write_recipe
from convbench.learn.rows import Chats, Material, pair_rows, write_table
from convbench.learn.select import select
from convbench.learn.sweet import (
    CANDIDATES,
    CRITIC,
    RANK,
    SCORES,
    SweetArgs,
    candidate_places,
    critic_recipe,
    ranked_pairs,
    read_scores,
    rows_to_rank,
    sample_missing,
    trajectory_material,
)
from convbench.schema.conversation import TurnCredit
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.store.notes import append_credit
from convbench.store.run import Run
from convbench.views import own_turns


def stage_lines(recipe: Recipe, runs: Sequence[Run], context: Context) -> Iterator[str]:
    """Yield the lines of a dry run of `sweet`: what each stage will do."""
    args, selection = SweetArgs.from_recipe(recipe), select(runs, recipe.data)
    chats = Chats(context.model_path, recipe.data.reasoning)
    material = trajectory_material(critic_recipe(recipe), runs, chats, context.limit)
    held = sum(is_held for *_, is_held in material.items)
    places = len(candidate_places(selection, args))
    yield f"{len(selection.logged)} conversations, judge {selection.judge}"
    yield f"stage 1: {len(material.items) - held} pairs of conversations, {held} held out"
    yield (
        f"stage 2: {places} replies, {args.candidates} candidates each (on {args.share:.0%} of the "
        f"conversations, temperature {args.temperature:g}), {places * args.pairs} pairs"
    )
    if material.ties is not None:
        yield material.ties.line()


def sweet_material(folder: Path, recipe: Recipe, runs: Sequence[Run], context: Context) -> Material:
    """Go through the stages before the policy's training, and return its pairs of candidates.

    Raise ConvbenchError if a stage fails; the same call then resumes."""
    if len(runs) > 1:
        raise TrainError(f"recipe {recipe.name!r}: found {len(runs)} runs; expected one --run")
    run, selection = runs[0], select(runs, recipe.data)
    chats = Chats(context.model_path, recipe.data.reasoning)
    write_recipe(folder, recipe)
    asked = run, recipe, selection, folder / CANDIDATES, context.calls, context.session
    sample_missing(*asked, check=True)
    if not Checkpoint(folder / CRITIC).is_finished:
        first = critic_recipe(recipe)
        pairs = trajectory_material(first, runs, chats, context.limit)
        fit_rows(folder / CRITIC, first, pairs, context)
    sample_missing(*asked, check=False)
    if not (folder / RANK / SCORES).exists():
        write_table(folder / RANK, rows_to_rank(folder, run, recipe, selection, chats))
        start_program("rank", folder, recipe, context)
    return pair_rows(ranked_pairs(folder, recipe, selection), recipe, chats, context.limit)


def store_credit(folder: Path, run: Run) -> int:
    """Append the critic's advantage of every turn, of all splits, to the run's `advantages.jsonl`,
    and return the number of turns. A turn that called tools has the mean of its replies'."""
    scores, source = read_scores(folder), f"critic:{folder.resolve().name}"
    credit = []
    for conversation in run.conversations():
        name = conversation.conversation_id
        values = iter(scores.get(name, []))
        for turn in own_turns(run.manifest.protocol, conversation):
            own = list(islice(values, conversation.turns[turn].reply_count))
            if own:
                about = {"conversation_id": name, "turn_index": turn, "source": source}
                credit.append(TurnCredit(**about, advantage=fmean(own)))
    return append_credit(run, credit)
