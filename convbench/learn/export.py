"""Get a recipe's training data without training, and write it in other trainers' formats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.errors import SpecError, UsageError
from convbench.formats.export import (
    FORMATS,
    THOUGHT,
    ExportPlan,
    ExportResult,
    Target,
    export_conversations,
    export_pairs,
    tag_reasoning,
)
from convbench.judges.adaptation.verdict import MARGIN
from convbench.learn import launch as launching
from convbench.learn import weights as weighing
from convbench.learn.job import Job, TrainingData
from convbench.learn.pairs import Pairs, PolicyReply
from convbench.learn.select import relevant_flags
from convbench.learn.train import split_sets
from convbench.learn.weights import Weighted
from convbench.options.shared import SpecOptions
from convbench.options.specs import load_plugins
from convbench.schema import Message
from convbench.schema.recipe import EditFilter, FlaggedRule, Recipe
from convbench.store.checkpoint import Checkpoint
from convbench.store.run import Run

TRAINED = "data.least={'*': {trained: 1}}"
"""Excludes edits that could not be trained on, even if all others do harm."""
FILTERS: Mapping[EditFilter, tuple[str, ...]] = {
    "best-of-k": ("data.metric=reward", "weighting.threshold=null", TRAINED),
    "improves": ("data.metric=net", f"weighting.threshold={MARGIN}", TRAINED),
    "right": ("data.metric=accuracy", "weighting.threshold=1.0"),
}
"""Settings by filter of self-edits: each context's best edit, all that improve (equation (2)) by
more than the margin of the judge's `improves`, or all after which their task is solved."""


def load_training_data(
    run: Run, name: str, specs: SpecOptions, data: dict[str, Any] | None = None
) -> tuple[Job, TrainingData]:
    """Return (job of a recipe on a run, its training data); `name` is a recipe's name or file.

    `data` replaces values of the recipe's data selection. What a learner prepares (a
    critic's ranking) is taken from the run if the recipe was trained there. Raises SpecError (no
    such recipe, one that trains nothing), TrainError (not judged, nothing prepared, nothing left).
    """
    recipe = _load_recipe(name, with_filter(specs, _load_recipe(name, specs)))
    if recipe.trainer is None:
        raise SpecError(f"recipe {recipe.name!r} trains nothing, so it has no training data")
    module = launching.load_trainer(launching.locate_trainer(recipe.trainer))
    folder = run.checkpoints_folder / recipe.name
    values = {
        "run": str(run.path.resolve()),
        "data": recipe.data.model_copy(update=data or {}),
        "model": recipe.model or Checkpoint(folder).recipe.get("model"),
    }
    job = Job(recipe.model_copy(update=values), folder)
    return job, job.training_data(module)


def _load_recipe(name: str, specs: SpecOptions) -> Recipe:
    sets, launch = split_sets(specs.sets)
    if launch:
        raise UsageError("--set launch.…: nothing is launched here; expected keys of the recipe")
    return catalog.load_spec(Recipe, "recipes", name, specs=specs.folders, sets=sets)


def with_filter(specs: SpecOptions, recipe: Recipe) -> SpecOptions:
    """Return the spec options with the settings of the recipe's filter, if it has one; the user's
    own settings take precedence."""
    if recipe.filter is None:
        return specs
    user_sets = split_sets(specs.sets)[0]
    sets = FILTERS[recipe.filter]
    return replace(
        specs, sets=(*(s for s in sets if s.partition("=")[0] not in user_sets), *specs.sets)
    )


MOST_ROWS = 10_000_000
"""Most rows that repeated conversations may make."""


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
    """Return `RECIPE`, or `RECIPE-JUDGE` if the recipe names a judge.

    In the judge's name every run of characters other than letters, digits, `_`, `.` and `-` becomes
    one `-`; then `-` and `.` at its ends are removed. If nothing is left, return `RECIPE`.
    """
    judge = re.sub(r"[^\w.-]+", "-", recipe.data.judge or "").strip("-.")
    return f"{recipe.name}-{judge}" if judge else recipe.name


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
    weights of turns or over 10 million rows, UsageError for a scale not above 0, TrainError for
    negative weights to be rounded, RunError if nothing is left.
    """
    shape = FORMATS[target]
    names = [item.conversation_id for item, _ in weighted.items]
    weights = [weight for _, weight in weighted.items]
    if weighted.by_turn:
        raise SpecError(
            f"recipe {recipe.name}: weighting.reward: found turn; expected conversation: a file's "
            "row is a conversation, with one weight; `convbench train` weighs turns"
        )
    if scale is not None and not scale > 0:
        raise UsageError(f"--scale {scale}: expected a number above 0")
    if scale is None and shape.weighted is not None:
        plan = ExportPlan(weights=dict(zip(names, weights, strict=True)))
    else:
        repeats = weighing.round_weights(weights, scale or 1.0, seed)
        if sum(repeats) > MOST_ROWS:
            raise SpecError(
                f"--scale {scale:g}: found {sum(repeats):,} rows to write; expected at most "
                f"{MOST_ROWS:,}; give a smaller scale"
            )
        plan = ExportPlan(repeats=dict(zip(names, repeats, strict=True)))
    dropped = recipe.data.flagged == "drop"
    without = flagged_train(run) if dropped else frozenset()
    done = export_conversations(run, target, folder, plan, without, named=named)
    if not dropped:
        done.notes += weighted.selection.flagged.describe()
    done.notes += [*shape.needs, *(weighted.ties.describe() if weighted.ties else ())]
    if done.negative:
        done.notes.append(
            f"{done.negative} of {len(weights)} conversations have a weight below 0 and were left "
            f"out ({shape.negative}): `convbench train {recipe.name}` learns from them"
        )
    if plan.repeats is None and any(weight not in (0.0, 1.0) for weight in weights):
        instead = "" if done.negative else "; --scale S repeats rows by weight in its place"
        done.notes.append(shape.weighing + instead)
    return done


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
    without_reasoning = FORMATS[target].drops_reasoning or recipe.data.reasoning == "drop"
    items = (
        (
            p.messages,
            _reply_message(p.chosen, without_reasoning),
            _reply_message(p.rejected, without_reasoning),
        )
        for p in pairs.items
    )
    protocol = pairs.selection.run.manifest.protocol
    tools = protocol.speakers[protocol.policy].tool_schemas
    done = export_pairs(target, folder, items, tools, named=named)
    done.notes += pairs.selection.describe(recipe.data.metric)
    done.notes += [f"omitted: {count} {reason}" for reason, count in pairs.skipped.items()]
    done.notes += pairs.ties.describe() if pairs.ties else ()
    done.notes.append(f"pairs for DPO; the recipe trains them with beta {recipe.pairing.beta:g}")
    return done


def _reply_message(reply: PolicyReply, without_reasoning: bool) -> Message:
    """Return a reply as a message, with its reasoning in tags before its text or without it."""
    reasoning = reply.reasoning.text if reply.reasoning and not without_reasoning else ""
    message: Message = {
        "role": "assistant",
        "content": tag_reasoning({"content": reply.text, THOUGHT: reasoning}),
    }
    if reply.calls:
        message["tool_calls"] = reply.calls
    return message


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

    With a `recipe` (a name or a file, as `train` takes it) the train split is the recipe's own
    training data, in RUN/export/TO/RECIPE[-JUDGE]: weighted conversations if the format has weights
    and no `scale` is set; else conversations repeated floor or ceil of scale * weight times, with
    that mean (randomised rounding; Mukherjee et al. 2025, end of section 3.2); or pairs of replies.
    Conversations of negative weight are left out and counted: no other trainer unlearns them from a
    file. Flagged conversations of the train split are dropped, unless `flagged` or the recipe says
    otherwise. Raises SpecError, UsageError, TrainError (not judged, negative weights to round),
    RunError.
    """
    target = next((name for name in FORMATS if name == to), None)
    if target is None:
        raise UsageError(f"--to {to}: expected one of {', '.join(FORMATS)}")
    if target == "atif" and recipe is not None:
        raise UsageError("--to atif: a trajectory has no weight; expected no --recipe")
    folder = run.path / "export" / target
    specs = specs or SpecOptions()
    load_plugins(specs)
    if recipe is None:
        _refuse_needless({"--scale": scale, "--judge": judge, "--set": specs.sets or None})
        without = frozenset() if flagged == "keep" else flagged_train(run)
        done = export_conversations(
            run, target, out or folder, None, without, named=out is not None
        )
        done.notes += FORMATS[target].needs
        return done
    overrides = {"judge": judge, "flagged": flagged}
    data = {name: value for name, value in overrides.items() if value is not None}
    job, training_data = load_training_data(run, recipe, specs, data)
    destination = out or folder / folder_name(job.recipe)
    if isinstance(training_data, Pairs):
        return export_paired(
            training_data, target, destination, job.recipe, scale, named=out is not None
        )
    if isinstance(training_data, Weighted):
        return export_weighted(
            run, training_data, target, destination, job.recipe, scale, seed, named=out is not None
        )
    raise SpecError(
        f"--recipe {recipe}: trains on pairs of full conversations, which no format here can "
        "hold; expected a recipe that weights conversations or pairs replies"
    )


def _refuse_needless(options: dict[str, object]) -> None:
    """Raise UsageError for options that need a recipe."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name}: expected a --recipe that it is for, e.g. --recipe refit")
