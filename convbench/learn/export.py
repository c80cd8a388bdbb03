"""Hand what a recipe learns from to `formats.export`: weighted conversations, or pairs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import get_args

from convbench.errors import RunError, SpecError, UsageError
from convbench.formats.export import (
    THOUGHT,
    WEIGHING,
    Chosen,
    ExportResult,
    Target,
    export_conversations,
    export_pairs,
    offered_tools,
    tag_reasoning,
)
from convbench.learn.pairs import Pairs, Reply, pair
from convbench.learn.select import relevant_flags, select
from convbench.learn.sweet import ranked_pairs
from convbench.learn.train import WEIGHTED, direct_protocol, load_recipe, split_sets
from convbench.learn.weights import Weighted, round_weights, weigh
from convbench.options.shared import SpecOptions
from convbench.options.specs import load_plugins
from convbench.schema import Message
from convbench.schema.recipe import FlaggedRule, Recipe
from convbench.store.run import Run


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
    target = next((name for name in get_args(Target) if name == to), None)
    if target is None:
        raise UsageError(f"--to {to}: expected one of {', '.join(get_args(Target))}")
    if target == "atif" and recipe is not None:
        raise UsageError("--to atif: a trajectory has no weight; expected no --recipe")
    folder, specs = run.path / "export" / target, specs or SpecOptions()
    for file in [] if out else folder.rglob("*.jsonl"):
        if file.is_symlink():  # it came with the run, and may lead anywhere
            file.unlink()
    load_plugins(specs)
    if recipe is None:
        for option, value in (("--scale", scale), ("--judge", judge), ("--set", specs.sets)):
            if value not in (None, ()):
                raise UsageError(f"{option}: expected a --recipe that it is for, e.g. refit")
        return _export_chosen(run, target, out or folder, flagged != "keep")
    found = load_recipe(recipe, specs, split_sets(specs.sets)[0])
    values = {"judge": judge, "flagged": flagged}
    data = found.data.model_copy(update={k: v for k, v in values.items() if v is not None})
    name = re.sub(r"[^\w.-]+", "-", data.judge or "").strip("-.")
    found = found.model_copy(update={"data": data})
    place = out or folder / (f"{found.name}-{name}" if name else found.name)
    selection = select([run], data)
    if found.trainer in WEIGHTED:
        weighted = weigh(selection, found.weighting, found.fit.seed)
        return _export_weighted(weighted, target, place, found, scale, seed)
    if found.trainer == "sweet":
        pairs = ranked_pairs(run.checkpoints_folder / found.name, found, selection)
    elif found.trainer == "preference":
        pairs = pair(selection, found.pairing, direct_protocol(found, specs), found.fit.seed)
    else:
        raise SpecError(
            f"--recipe {recipe}: trains on what a file of {target} cannot hold; expected a recipe "
            "that weights conversations or pairs replies"
        )
    if scale is not None:
        raise SpecError(f"--scale: recipe {found.name!r} pairs replies, which have no weight")
    return _export_paired(pairs, target, place, found)


def _export_weighted(
    weighted: Weighted,
    target: Target,
    folder: Path,
    recipe: Recipe,
    scale: float | None,
    seed: int,
) -> ExportResult:
    """Write weighted conversations; each is repeated by randomised rounding with a `scale`, or if
    the format has no weights."""
    selection = weighted.selection
    if recipe.weighting.reward != "conversation":
        raise SpecError(
            f"recipe {recipe.name}: weighting.reward: found {recipe.weighting.reward}; expected "
            "conversation: a file's row is a conversation, with one weight; `convbench train` "
            "weighs turns"
        )
    weights, repeats = {item.id: weight for item, weight in weighted.of_conversations()}, None
    if scale is not None or target not in WEIGHING:
        rounded = round_weights(list(weights.values()), scale or 1.0, seed)
        repeats = dict(zip(weights, rounded, strict=True))
    drops = recipe.data.flagged == "drop"
    done = _export_chosen(selection.runs[0], target, folder, drops, weights, repeats)
    if not drops:
        done.notes += selection.notes(recipe.data)
    done.notes += [weighted.ties.line()] if weighted.ties else []
    if negative := done.left_out["negative"]:
        done.notes.append(
            f"{negative} of {len(weights)} conversations have a weight below 0 and were left "
            f"out: `convbench train {recipe.name}` learns from them"
        )
    if repeats is None and any(weight not in (0.0, 1.0) for weight in weights.values()):
        instead = "" if negative else "; --scale S repeats rows by weight in its place"
        done.notes.append(WEIGHING[target] + instead)
    return done


def _export_chosen(
    run: Run,
    target: Target,
    folder: Path,
    drops_flagged: bool,
    weights: Mapping[str, float] | None = None,
    repeats: Mapping[str, int] | None = None,
) -> ExportResult:
    """Write a run's conversations with their weights and copies, and count the others. Raise
    RunError if there is none.

    Of split train those without a weight above 0 are left out, since no file can say that a reply
    is to be unlearnt, or those of 0 repeats where there are some; and flagged ones, if they are to
    be dropped. Other splits are whole.
    """
    left_out: Counter[str] = Counter()

    def chosen() -> Iterator[Chosen]:
        is_any = False
        for talk in run.conversations():
            name, is_train = talk.conversation_id, run.examples[talk.example_id].split == "train"
            weight = weights.get(name, 0.0) if weights is not None and is_train else None
            copies = repeats.get(name, 0) if repeats is not None and is_train else 1
            if talk.failure is not None:
                left_out["failed"] += 1
            elif is_train and drops_flagged and relevant_flags(talk.flags):
                left_out["flagged"] += 1
            elif copies < 1 or (repeats is None and weight is not None and weight <= 0):
                left_out["negative" if (weight or 0.0) < 0 else "unweighted"] += 1
            else:
                is_any = True
                yield talk, weight if repeats is None else None, copies
        if not is_any:
            reasons = ", ".join(f"{n} {why}" for why, n in left_out.items()) or "none at all"
            raise RunError(f"{run.path}: found no conversation to export ({reasons})")

    done = export_conversations(run, target, folder, chosen())
    done.left_out = left_out
    return done


def _export_paired(pairs: Pairs, target: Target, folder: Path, recipe: Recipe) -> ExportResult:
    """Write pairs of replies to `train.jsonl`. Raise RunError if the format cannot hold them."""
    bare = target == "openai" or recipe.data.reasoning == "drop"

    def message(reply: Reply) -> Message:
        thought = reply.reasoning.text if reply.reasoning and not bare else ""
        text = tag_reasoning({"content": reply.text, THOUGHT: thought})
        said: Message = {"role": "assistant", "content": text}
        return {**said, "tool_calls": reply.calls} if reply.calls else said

    tools = [offered_tools(p.item.protocol, p.item.conversation) for p in pairs.items]
    items = (
        (p.messages, message(p.chosen), message(p.rejected), offered)
        for p, offered in zip(pairs.items, tools if any(tools) else repeat(None), strict=False)
    )
    done = export_pairs(target, folder, items)
    done.notes += pairs.selection.notes(recipe.data)
    done.notes += [f"omitted: {count} {reason}" for reason, count in pairs.left_out.items()]
    done.notes += [pairs.ties.line()] if pairs.ties else []
    done.notes.append(f"pairs for DPO; the recipe trains them with beta {recipe.pairing.beta:g}")
    return done
