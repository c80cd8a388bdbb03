"""Go through SWEET's stages, and credit every turn of the run by its critic.

Every stage leaves its result in the checkpoint's folder, and is not done again:

    critic/            the trained critic, a checkpoint
    candidates.jsonl   what was sampled at the policy's turns
    rank/              rows for `trainers/rank.py`, which writes scores.jsonl: the critic's
                       advantage of each candidate, and of each turn that was logged
    rows/              pairs of candidates, for `trainers/preference.py`
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from convbench.errors import TrainError
from convbench.learn.launch import Context, fit_rows, start_program, write_recipe
from convbench.learn.pairs import Pair, Pairs, Reply
from convbench.learn.rows import Chats, Material, Row, pair_rows, write_table
from convbench.learn.select import Logged, Selection, select
from convbench.learn.sweet import (
    CANDIDATES,
    CRITIC,
    RANK,
    SCORES,
    Place,
    SweetArgs,
    candidate_key,
    candidate_places,
    critic_recipe,
    critic_rows,
    hidden_text,
    place_of,
    reply_of,
    sample_missing,
    trajectory_material,
    turn_rows,
    with_hidden_text,
)
from convbench.learn.tokens import PromptedReply, Unrenderable
from convbench.rollout.candidates import candidate_rows
from convbench.rollout.plan import seen_before
from convbench.schema.conversation import TurnCredit
from convbench.schema.recipe import Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import read_records
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
    shown = "with" if args.informed_reference else "without"
    yield f"advantage: normalize {args.normalize}; reference {shown} hidden"
    yield f"NLL: {args.critic_nll:g} in stage 1, {args.nll:g} in stage 2"


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
        write_table(folder / RANK, _rows_to_rank(folder, run, recipe, selection, chats))
        start_program("rank", folder, recipe, context)
    return pair_rows(ranked_pairs(folder, recipe, selection), recipe, chats, context.limit)


def store_credit(folder: Path, run: Run) -> int:
    """Append the critic's advantage of every turn, of all splits, to the run's `advantages.jsonl`,
    and return the number of turns. A turn that called tools has the mean of its replies'."""
    scores, source = _read_scores(folder), f"critic:{folder.resolve().name}"
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


def ranked_pairs(folder: Path, recipe: Recipe, selection: Selection) -> Pairs:
    """Return pairs of candidates of a turn under the messages that the policy saw, without hidden
    text, equation (4). Raise TrainError if there are none, or no scores."""
    if not (folder / RANK / SCORES).is_file():
        raise TrainError(
            f"{folder / RANK / SCORES}: found no such file; convbench train {recipe.name} makes "
            "it, from candidates and their scores"
        )
    args, scores = SweetArgs.from_recipe(recipe), _read_scores(folder)
    known = {item.id for item in selection.logged}
    places: dict[Place, list[tuple[float, Reply]]] = {}
    unscored = 0
    for row in candidate_rows(folder / CANDIDATES):
        values = scores.get(candidate_key(row))
        if values is None or row["conversation_id"] not in known:
            unscored += 1
        else:
            places.setdefault(place_of(row), []).append((sum(values), reply_of(row)))
    pairs = candidate_pairs(selection, places, args, recipe.fit.seed)
    if not pairs.items:
        equal = sum(pairs.left_out.values())
        raise TrainError(
            f"no pair of candidates is left to train on ({unscored} candidates without a score, "
            f"{equal} pairs of the same text or advantage); sample more per turn "
            "(args.candidates), or train the critic for longer (args.critic)"
        )
    return pairs


def candidate_pairs(
    selection: Selection,
    places: Mapping[Place, Sequence[tuple[float, Reply]]],
    args: SweetArgs,
    seed: int,
) -> Pairs:
    """Return pairs of the candidates (advantage, reply) of each place, under the messages that the
    policy saw there; those of the same text or advantage are left out."""
    by_id = {item.id: item for item in selection.logged}
    pairs, left_out = [], Counter[str]()
    for (name, turn, rounds), candidates in places.items():
        item = by_id[name]
        draw = random.Random(f"{seed}/{name}/{turn}" + (f".{rounds}" if rounds else ""))
        seen = tuple(seen_before(item.protocol, item.conversation, turn, rounds))
        for (gain, better), (loss, worse) in draw_pairs(candidates, args.pairs, draw):
            if better.content_key == worse.content_key or gain == loss:
                left_out["pairs of the same text or advantage"] += 1
            else:
                pairs.append(Pair(item, seen, better, worse))
    return Pairs(selection, pairs, dict(left_out))


def draw_pairs(
    candidates: Sequence[tuple[float, Reply]], count: int, draw: random.Random
) -> list[tuple[tuple[float, Reply], tuple[float, Reply]]]:
    """Return `count` pairs (better, worse): one drawn from the upper half by advantage, one from
    the lower; none of fewer than two. The middle one of an odd number is in neither half."""
    order = sorted(candidates, key=lambda candidate: -candidate[0])
    half = len(order) // 2
    if not half:
        return []
    upper, lower = order[:half], order[len(order) - half :]
    return [(draw.choice(upper), draw.choice(lower)) for _ in range(count)]


def _rows_to_rank(
    folder: Path, run: Run, recipe: Recipe, selection: Selection, chats: Chats
) -> Iterator[Row]:
    """Yield a row for each candidate, equal contents of one place once, and for each logged
    conversation, of any split, that the critic can read: how critic and reference read it."""
    args = SweetArgs.from_recipe(recipe)
    by_id = {item.id: item for item in selection.logged}
    seen: set[str] = set()
    for row in candidate_rows(folder / CANDIDATES):
        item, key = by_id.get(row["conversation_id"]), candidate_key(row)
        if item is None or key in seen:
            continue
        seen.add(key)
        _, turn, rounds = place_of(row)
        before = seen_before(item.protocol, item.conversation, turn, rounds)
        text, chat = hidden_text(item, args), chats.of(item.run, item.conversation)
        critic, reference = (
            turn_rows(chat, [PromptedReply(with_hidden_text(before, shown), reply_of(row))], item)
            for shown in (text, text if args.informed_reference else "")
        )
        if critic and reference:
            yield {"key": key, "critic": critic, "reference": reference}
    for conversation in run.conversations():
        example = run.examples[conversation.example_id]
        if conversation.failure is not None or not all(n in example.hidden for n in args.hidden):
            continue
        item = Logged(run, conversation, example, example.example_id, 0.0)
        try:
            rows = critic_rows(item, chats, args)
        except Unrenderable:
            continue
        if rows:
            yield {"key": item.id, "critic": rows, "reference": rows}


def _read_scores(folder: Path) -> dict[str, list[float]]:
    """Return what `trainers/rank.py` wrote: the advantages of each row's turns, by its key."""
    return {row["key"]: row["advantages"] for row in read_records(folder / RANK / SCORES)}
