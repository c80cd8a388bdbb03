"""`export`: a run in another trainer's format, weighted or paired as a recipe says."""

from __future__ import annotations

import re
from pathlib import Path

from convbench.errors import SpecError
from convbench.formats.export import Exported, Plan, export_pairs
from convbench.formats.export import export as write
from convbench.formats.targets import FORMATS, Target
from convbench.learn import weights as weighing
from convbench.learn.data import learnt_of
from convbench.learn.flagged import findings
from convbench.learn.pairs import Pairs
from convbench.learn.weights import Weighted
from convbench.options.shared import SpecOptions
from convbench.options.specs import load_plugins
from convbench.schema.recipe import FlaggedRule, Recipe
from convbench.store.run import Run


def export(
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
) -> Exported:
    """Write the run's conversations to `out` (RUN/export/TO), one file a split.

    With a `recipe` (a name or a file, as `train` takes it) the train split is what its own trainer
    makes of the run, in RUN/export/TO/RECIPE[-JUDGE]: weights where the format has a place for
    them and no `scale` is given; else whole conversations repeated floor or ceil of scale * weight
    times, with that mean (randomised rounding; Mukherjee et al. 2025, end of section 3.2); or
    pairs of replies. Conversations of negative weight are left out and counted: no other trainer
    unlearns them from a file. Conversations of the train split that a fidelity check flagged are
    dropped, unless `flagged` or the recipe says otherwise (`zero` sets a reward, so it needs a
    recipe). Raises SpecError, TrainError (not judged, negative weights to round), RunError.
    """
    target = next((name for name in FORMATS if name == to), None)
    if target is None:
        raise SpecError(f"--to {to}: expected one of {', '.join(FORMATS)}")
    folder = run.path / "export" / target
    specs = specs or SpecOptions()
    load_plugins(specs)
    if recipe is None:
        _needless({"--scale": scale, "--judge": judge, "--set": specs.sets or None}, flagged)
        without = frozenset() if flagged == "keep" else _flagged(run)
        done = write(run, target, out or folder, None, without)
        done.notes += FORMATS[target].needs
        return done
    asked = {"judge": judge, "flagged": flagged}
    data = {name: value for name, value in asked.items() if value is not None}
    job, learnt = learnt_of(run, recipe, specs, data)
    place = out or folder / _place(job.recipe)
    if isinstance(learnt, Pairs):
        return _pairs(learnt, target, place, job.recipe, scale)
    if isinstance(learnt, Weighted):
        return _weighted(run, learnt, target, place, job.recipe, scale, seed)
    raise SpecError(
        f"--recipe {recipe}: learns from whole conversations against each other, which no format "
        "here can hold; expected one that weighs conversations or pairs replies"
    )


def _needless(said: dict[str, object], flagged: FlaggedRule | None) -> None:
    """Refuse options that mean nothing without a recipe."""
    if flagged == "zero":
        raise SpecError("--flagged zero: expected a --recipe, whose rewards it sets; or drop")
    for name, value in said.items():
        if value is not None:
            raise SpecError(f"{name}: expected a --recipe that it is for, e.g. --recipe refit")


def _flagged(run: Run) -> frozenset[str]:
    """Return the ids of the train split's flagged conversations."""
    return frozenset(
        conversation.conversation_id
        for conversation in run.conversations()
        if run.examples[conversation.example_id].split == "train"
        and findings(run.manifest.protocol, conversation)
    )


def _place(recipe: Recipe) -> str:
    """Return the folder's name: the recipe's, with the judge's where one was named."""
    judge = re.sub(r"[^\w.-]+", "-", recipe.data.judge or "").strip("-.")
    return f"{recipe.name}-{judge}" if judge else recipe.name


def _weighted(
    run: Run,
    learnt: Weighted,
    target: Target,
    folder: Path,
    recipe: Recipe,
    scale: float | None,
    seed: int,
) -> Exported:
    """Write weighted conversations; say what is lost outside this house."""
    shape = FORMATS[target]
    names = [item.conversation.conversation_id for item, _ in learnt.items]
    weights = [weight for _, weight in learnt.items]
    if scale is not None and not 0 < scale < float("inf"):
        raise SpecError(f"--scale {scale}: expected a number above 0")
    if scale is None and shape.weighted is not None:
        plan = Plan(weights=dict(zip(names, weights, strict=True)))
    else:
        repeats = weighing.rounded(weights, scale or 1.0, seed)
        plan = Plan(repeats=dict(zip(names, repeats, strict=True)))
    dropped = recipe.data.flagged == "drop"
    done = write(run, target, folder, plan, _flagged(run) if dropped else frozenset())
    if not dropped:
        done.notes += learnt.selection.flagged.describe()
    done.notes += shape.needs
    if done.negative:
        done.notes.append(
            f"{done.negative} of {len(weights)} conversations have a weight below 0 and were left "
            f"out ({shape.negative}): `convbench train {recipe.name}` learns from them"
        )
    if plan.repeats is None and any(weight not in (0.0, 1.0) for weight in weights):
        instead = "" if done.negative else "; --scale S repeats rows by weight in its place"
        done.notes.append(shape.weighing + instead)
    return done


def _pairs(
    learnt: Pairs, target: Target, folder: Path, recipe: Recipe, scale: float | None
) -> Exported:
    """Write pairs of replies."""
    if scale is not None:
        raise SpecError(f"--scale: recipe {recipe.name!r} pairs replies, which have no weight")
    items = ((p.messages, p.chosen.text, p.rejected.text) for p in learnt.items)
    done = export_pairs(target, folder, items)
    done.notes += learnt.selection.describe(recipe.data.metric)
    done.notes += [f"left out: {count} {reason}" for reason, count in learnt.skipped.items()]
    done.notes.append(f"pairs for DPO; the recipe trains them with beta {recipe.pairing.beta:g}")
    return done
