"""`export`: a run in another trainer's format, weighted by a recipe where one is named."""

from __future__ import annotations

from pathlib import Path

from convbench.errors import SpecError
from convbench.formats.export import TARGETS, WEIGHTED, Exported, Plan, Target
from convbench.formats.export import export as write
from convbench.learn import weights as weighing
from convbench.learn.flagged import findings
from convbench.learn.select import select
from convbench.schema.recipe import Data, FlaggedRule, Weighting
from convbench.store.run import Run

RULES = {
    "refit": weighing.refit,
    "swift": weighing.swift,
    "star-gate": weighing.star_gate,
}
"""Recipes that are a weighting; the others need pairs or a model."""


def export(
    run: Run,
    to: str,
    out: Path | None = None,
    *,
    recipe: str | None = None,
    scale: float | None = None,
    judge: str | None = None,
    seed: int = 0,
    flagged: FlaggedRule = "drop",
) -> Exported:
    """Write the run's conversations to `out` (RUN/export/TO), one file a split.

    With a `recipe` the train split is weighted by one judge's rewards: as weights where the
    format has a place for them and no `scale` is given; else whole conversations are repeated
    floor or ceil of scale * weight times, with that mean (randomised rounding; Mukherjee et al.
    2025, end of section 3.2). Conversations of the train split that a fidelity check flagged are
    dropped, unless `flagged` says otherwise (`zero` sets a reward, so it needs a recipe). Raises
    SpecError, TrainError (not judged, negative weights to
    round), RunError.
    """
    target = next((name for name in TARGETS if name == to), None)
    if target is None:
        raise SpecError(f"--to {to}: expected one of {', '.join(TARGETS)}")
    plan = _plan(run, target, recipe, scale, Data(judge=judge, flagged=flagged), seed)
    without = _flagged(run) if flagged == "drop" else frozenset()
    return write(run, target, out or run.path / "export" / target, plan, without)


def _flagged(run: Run) -> frozenset[str]:
    """Return the ids of the train split's flagged conversations."""
    return frozenset(
        conversation.conversation_id
        for conversation in run.conversations()
        if run.examples[conversation.example_id].split == "train"
        and findings(run.manifest.protocol, conversation)
    )


def _plan(
    run: Run, target: Target, recipe: str | None, scale: float | None, data: Data, seed: int
) -> Plan | None:
    if recipe is None:
        if scale is not None:
            raise SpecError("--scale: expected a --recipe whose weights are rounded, e.g. refit")
        if data.flagged == "zero":
            raise SpecError("--flagged zero: expected a --recipe, whose rewards it sets; or drop")
        return None
    if recipe not in RULES:
        raise SpecError(
            f"--recipe {recipe}: expected one that weighs conversations: {', '.join(RULES)}"
        )
    if scale is not None and not 0 < scale < float("inf"):
        raise SpecError(f"--scale {scale}: expected a number above 0")
    weighted = RULES[recipe](select(run, data), Weighting())
    ids = [item.conversation.conversation_id for item, _ in weighted.items]
    weights = [weight for _, weight in weighted.items]
    if scale is None and target in WEIGHTED:
        return Plan(weights=dict(zip(ids, weights, strict=True)))
    repeats = weighing.rounded(weights, scale or 1.0, seed)
    return Plan(repeats=dict(zip(ids, repeats, strict=True)))
