"""Write what a recipe learns from in other trainers' formats: weighted conversations, or pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from pathlib import Path

from convbench import catalog
from convbench.errors import RunError, SpecError, UsageError
from convbench.formats.export import (
    FORMATS,
    THOUGHT,
    Chosen,
    ExportResult,
    Target,
    export_conversations,
    export_pairs,
    offered_tools,
    tag_reasoning,
)
from convbench.learn.credit import ranked_pairs
from convbench.learn.pairs import Pairs, Reply, pair
from convbench.learn.select import relevant_flags, select
from convbench.learn.train import WEIGHTED, load_recipe, split_sets
from convbench.learn.weights import Weighted, round_weights, weigh
from convbench.options.shared import SpecOptions
from convbench.options.specs import load_plugins
from convbench.schema import Message, ProtocolSpec
from convbench.schema.recipe import FlaggedRule, Recipe
from convbench.store.run import Run

MOST_ROWS = 10_000_000
"""Most rows that repeated conversations may make."""


def export_run(
    run: Run,
    to: str,
    out: Path | None = None,
    *,
    recipe: str | None = None,
    scale: float | None = None,
    judge: str | None = None,
    seed: int = 0,
    flagged: FlaggedRule | None = None,
    specs: SpecOptions | None = None,
) -> ExportResult:
    """Write the run's conversations to `out` (RUN/export/TO), one file a split; return what was
    written.

    With a `recipe` the train split is what the recipe learns from, in RUN/export/TO/RECIPE[-JUDGE]:
    weighted conversations if the format has weights and no `scale` is set; else conversations
    repeated floor or ceil of scale * weight times, with that mean (Mukherjee et al. 2025, end of
    section 3.2); or pairs of replies. Conversations of negative weight are left out and counted: no
    other trainer unlearns them from a file. Flagged conversations of the train split are dropped,
    unless `flagged` or the recipe says otherwise. Raises SpecError, UsageError, TrainError (not
    judged, negative weights to round), RunError.
    """
    target = next((name for name in FORMATS if name == to), None)
    if target is None:
        raise UsageError(f"--to {to}: expected one of {', '.join(FORMATS)}")
    if target == "atif" and recipe is not None:
        raise UsageError("--to atif: a trajectory has no weight; expected no --recipe")
    folder, specs, named = run.path / "export" / target, specs or SpecOptions(), out is not None
    load_plugins(specs)
    if recipe is None:
        left_out: Counter[str] = Counter()
        for option, value in (("--scale", scale), ("--judge", judge), ("--set", specs.sets)):
            if value not in (None, ()):
                raise UsageError(f"{option}: expected a --recipe that it is for, e.g. refit")
        without = frozenset() if flagged == "keep" else flagged_train(run)
        chosen = choose_rows(run, left_out, without)
        done = export_conversations(run, target, out or folder, chosen, named=named)
        done.left_out = left_out
        done.notes += FORMATS[target].needs
        return done
    found = _recipe_of(recipe, specs, judge, flagged)
    destination = out or folder / folder_name(found)
    if found.trainer == "sweet":
        place = run.checkpoints_folder / found.name
        pairs = ranked_pairs(place, found, select([run], found.data))
        return export_paired(pairs, target, destination, found, scale, named=named)
    if found.trainer == "preference":
        name = found.pairing.protocol
        direct = (
            catalog.load_spec(ProtocolSpec, "protocols", name, specs=specs.folders)
            if name
            else None
        )
        pairs = pair(select([run], found.data), found.pairing, direct, found.fit.seed)
        return export_paired(pairs, target, destination, found, scale, named=named)
    if found.trainer not in WEIGHTED:
        raise SpecError(
            f"--recipe {recipe}: trains on what a file of {target} cannot hold; expected a recipe "
            "that weights conversations or pairs replies"
        )
    weighted = weigh(select([run], found.data), found.weighting, found.fit.seed)
    return export_weighted(run, weighted, target, destination, found, scale, seed, named=named)


def export_weighted(
    run: Run,
    weighted: Weighted,
    target: Target,
    folder: Path,
    recipe: Recipe,
    scale: float | None,
    seed: int,
    *,
    named: bool = False,
) -> ExportResult:
    """Write a recipe's weighted conversations into `folder` and return the result.

    A format with weights gets them, unless there is a `scale`; else each conversation is repeated
    by randomised rounding. The notes say what the format cannot express. Raise SpecError for
    weights of turns or over 10 million rows, UsageError for a scale not above 0.
    """
    shape = FORMATS[target]
    if recipe.weighting.reward != "conversation":
        raise SpecError(
            f"recipe {recipe.name}: weighting.reward: found {recipe.weighting.reward}; expected "
            "conversation: a file's row is a conversation, with one weight; `convbench train` "
            "weighs turns"
        )
    if scale is not None and not scale > 0:
        raise UsageError(f"--scale {scale}: expected a number above 0")
    items = weighted.of_conversations()
    weights = [weight for _, weight in items]
    weight_of, repeats_of = {item.id: weight for item, weight in items}, None
    if scale is not None or not shape.weighing:
        repeats = round_weights(weights, scale or 1.0, seed)
        if sum(repeats) > MOST_ROWS:
            raise SpecError(
                f"--scale {scale:g}: found {sum(repeats):,} rows to write; expected at most "
                f"{MOST_ROWS:,}; give a smaller scale"
            )
        repeats_of = dict(zip(weight_of, repeats, strict=True))
    is_dropped = recipe.data.flagged == "drop"
    without = flagged_train(run) if is_dropped else frozenset()
    left_out: Counter[str] = Counter()
    chosen = choose_rows(run, left_out, without, weight_of, repeats_of)
    done = export_conversations(run, target, folder, chosen, named=named)
    done.left_out = left_out
    if not is_dropped:
        done.notes += weighted.selection.notes(recipe.data)
    done.notes += [*shape.needs, *([weighted.ties.line()] if weighted.ties else ())]
    if negative := left_out["negative"]:
        done.notes.append(
            f"{negative} of {len(weights)} conversations have a weight below 0 and were left "
            f"out ({shape.negative}): `convbench train {recipe.name}` learns from them"
        )
    if repeats_of is None and any(weight not in (0.0, 1.0) for weight in weights):
        instead = "" if negative else "; --scale S repeats rows by weight in its place"
        done.notes.append(shape.weighing + instead)
    return done


def choose_rows(
    run: Run,
    left_out: Counter[str],
    without: Collection[str] = (),
    weights: Mapping[str, float] | None = None,
    repeats: Mapping[str, int] | None = None,
) -> Iterator[Chosen]:
    """Yield the conversations of a run that are written, with their weights and copies; others are
    added to `left_out`. Raise RunError if there is none.

    Of train those without a weight above 0 are left out, since no file can say that a reply is to
    be unlearnt, or those of 0 repeats where there are some. Other splits are whole.
    """
    is_any = False
    for talk in run.conversations():
        name = talk.conversation_id
        is_train = run.examples[talk.example_id].split == "train"
        weight = weights.get(name, 0.0) if weights is not None and is_train else None
        copies = repeats.get(name, 0) if repeats is not None and is_train else 1
        if talk.failure is not None:
            left_out["failed"] += 1
        elif name in without:
            left_out["flagged"] += 1
        elif copies < 1 or (repeats is None and weight is not None and weight <= 0):
            left_out["negative" if (weight or 0.0) < 0 else "unweighted"] += 1
        else:
            is_any = True
            yield talk, weight if repeats is None else None, copies
    if not is_any:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items())
        raise RunError(f"{run.path}: found no conversation to export ({reasons or 'none at all'})")


def export_paired(
    pairs: Pairs,
    target: Target,
    folder: Path,
    recipe: Recipe,
    scale: float | None,
    *,
    named: bool = False,
) -> ExportResult:
    """Write pairs of replies to `train.jsonl` in `folder` and return the result with notes.

    Raise SpecError if a scale is given, RunError if the format cannot hold pairs.
    """
    if scale is not None:
        raise SpecError(f"--scale: recipe {recipe.name!r} pairs replies, which have no weight")
    bare = FORMATS[target].drops_reasoning or recipe.data.reasoning == "drop"
    tools = [offered_tools(p.item.protocol, p.item.conversation) for p in pairs.items]
    each = tools if any(tools) else repeat(None)
    items = (
        (p.messages, _reply_message(p.chosen, bare), _reply_message(p.rejected, bare), offered)
        for p, offered in zip(pairs.items, each, strict=False)
    )
    done = export_pairs(target, folder, items, named=named)
    done.notes += pairs.selection.notes(recipe.data)
    done.notes += [f"omitted: {count} {reason}" for reason, count in pairs.left_out.items()]
    done.notes += [pairs.ties.line()] if pairs.ties else []
    done.notes.append(f"pairs for DPO; the recipe trains them with beta {recipe.pairing.beta:g}")
    return done


def flagged_train(run: Run) -> frozenset[str]:
    """Return the ids of the train split's conversations that have a flag that counts. Form findings
    on the policy do not."""
    return frozenset(
        conversation.conversation_id
        for conversation in run.conversations()
        if run.examples[conversation.example_id].split == "train"
        and relevant_flags(conversation.flags)
    )


def folder_name(recipe: Recipe) -> str:
    """Return `RECIPE`, or `RECIPE-JUDGE` if the recipe names a judge, whose name keeps letters,
    digits, `_`, `.` and `-`."""
    judge = re.sub(r"[^\w.-]+", "-", recipe.data.judge or "").strip("-.")
    return f"{recipe.name}-{judge}" if judge else recipe.name


def _recipe_of(
    name: str, specs: SpecOptions, judge: str | None, flagged: FlaggedRule | None
) -> Recipe:
    sets, launch = split_sets(specs.sets)
    if launch:
        raise UsageError("--set launch.…: nothing is launched here; expected keys of the recipe")
    recipe = load_recipe(name, replace(specs, sets=()), sets)
    values = {"judge": judge, "flagged": flagged}
    data = recipe.data.model_copy(update={k: v for k, v in values.items() if v is not None})
    return recipe.model_copy(update={"data": data})


def _reply_message(reply: Reply, without_reasoning: bool) -> Message:
    """Return a reply as a message, with its reasoning in tags before its text or without it."""
    reasoning = reply.reasoning.text if reply.reasoning and not without_reasoning else ""
    message: Message = {
        "role": "assistant",
        "content": tag_reasoning({"content": reply.text, THOUGHT: reasoning}),
    }
    if reply.calls:
        message["tool_calls"] = reply.calls
    return message
