"""What a recipe makes of a run, in another trainer's format: weights, rows repeated, or pairs."""

from __future__ import annotations

import re
from pathlib import Path

from convbench.errors import SpecError, UsageError
from convbench.formats.export import Exported, Plan, export, export_pairs
from convbench.formats.targets import FORMATS, THOUGHT, Target, tagged
from convbench.learn import weights as weighing
from convbench.learn.flagged import findings
from convbench.learn.pairs import Pairs, Reply
from convbench.learn.weights import Weighted
from convbench.schema import Message
from convbench.schema.recipe import Recipe
from convbench.store.run import Run

MOST_ROWS = 10_000_000
"""Rows that conversations are repeated to."""


def flagged_train(run: Run) -> frozenset[str]:
    """Return the ids of the train split's flagged conversations."""
    return frozenset(
        conversation.conversation_id
        for conversation in run.conversations()
        if run.examples[conversation.example_id].split == "train"
        and findings(run.manifest.protocol, conversation.flags)
    )


def folder_name(recipe: Recipe) -> str:
    """Return the folder's name: the recipe's, with the judge's where one was named."""
    judge = re.sub(r"[^\w.-]+", "-", recipe.data.judge or "").strip("-.")
    return f"{recipe.name}-{judge}" if judge else recipe.name


def export_weighted(
    run: Run,
    learnt: Weighted,
    target: Target,
    folder: Path,
    recipe: Recipe,
    scale: float | None,
    seed: int,
    *,
    named: bool = False,
) -> Exported:
    """Write weighted conversations; say what is lost outside this house."""
    shape = FORMATS[target]
    names = [item.conversation_id for item, _ in learnt.items]
    weights = [weight for _, weight in learnt.items]
    if learnt.by_turn:
        raise SpecError(
            f"recipe {recipe.name}: weighting.reward: found turn; expected conversation: a file's "
            "row is a conversation, with one weight; `convbench train` weighs turns"
        )
    if scale is not None and not scale > 0:
        raise UsageError(f"--scale {scale}: expected a number above 0")
    if scale is None and shape.weighted is not None:
        plan = Plan(weights=dict(zip(names, weights, strict=True)))
    else:
        repeats = weighing.rounded(weights, scale or 1.0, seed)
        if sum(repeats) > MOST_ROWS:
            raise SpecError(
                f"--scale {scale:g}: found {sum(repeats):,} rows to write; expected at most "
                f"{MOST_ROWS:,}; give a smaller scale"
            )
        plan = Plan(repeats=dict(zip(names, repeats, strict=True)))
    dropped = recipe.data.flagged == "drop"
    without = flagged_train(run) if dropped else frozenset()
    done = export(run, target, folder, plan, without, named=named)
    if not dropped:
        done.notes += learnt.selection.flagged.describe()
    done.notes += [*shape.needs, *(learnt.ties.describe() if learnt.ties else ())]
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
    learnt: Pairs,
    target: Target,
    folder: Path,
    recipe: Recipe,
    scale: float | None,
    *,
    named: bool = False,
) -> Exported:
    """Write pairs of replies."""
    if scale is not None:
        raise SpecError(f"--scale: recipe {recipe.name!r} pairs replies, which have no weight")
    bare = FORMATS[target].drops or recipe.data.reasoning == "drop"
    items = ((p.messages, _said(p.chosen, bare), _said(p.rejected, bare)) for p in learnt.items)
    protocol = learnt.selection.run.manifest.protocol
    tools = protocol.speakers[protocol.policy].offered
    done = export_pairs(target, folder, items, tools, named=named)
    done.notes += learnt.selection.describe(recipe.data.metric)
    done.notes += [f"left out: {count} {reason}" for reason, count in learnt.skipped.items()]
    done.notes += learnt.ties.describe() if learnt.ties else ()
    done.notes.append(f"pairs for DPO; the recipe trains them with beta {recipe.pairing.beta:g}")
    return done


def _said(reply: Reply, bare: bool) -> Message:
    """Return a reply as a message, its reasoning in tags before its text unless `bare`."""
    thought = reply.reasoning.text if reply.reasoning and not bare else ""
    said: Message = {
        "role": "assistant", "content": tagged({"content": reply.text, THOUGHT: thought}),
    }  # fmt: skip
    if reply.calls:
        said["tool_calls"] = reply.calls
    return said
