"""The options of each step, as the experiment says them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from convbench.errors import SpecError
from convbench.experiment.cells import Cell, Step
from convbench.experiment.rounds import recipe_of as resolved
from convbench.options.build import BuildOptions
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import Shape
from convbench.options.specs import as_sets
from convbench.options.train import RoundsOptions, TrainOptions
from convbench.schema.experiment import ExperimentSpec, recipe_of


def elsewhere(options: ExperimentOptions) -> ExperimentOptions:
    """Return the options without the address, which is that of the policy the experiment starts
    from: neither a judge nor a checkpoint that was trained here is served there."""
    return replace(options, calls=replace(options.calls, api_base=None))


def build_options(
    cell: Cell, spec: ExperimentSpec, path: Path | None, options: ExperimentOptions
) -> BuildOptions:
    """Return how a cell's conversations are had; `path` is where they go."""
    return BuildOptions(
        task=cell.task,
        protocol=cell.protocol,
        tasks=spec.count,
        shape=Shape(
            mode=cell.mode,
            turns=cell.turns,
            samples=spec.samples,
            temperatures=spec.temperatures,
            max_tokens=spec.max_tokens,
            seed=cell.seed,
            regime=spec.regime,
        ),
        model=spec.model,
        teacher=spec.teacher,
        run=path,
        tested=True,
        specs=replace(options.specs, sets=as_sets(spec.sets)),
        calls=options.calls,
    )


def rounds_options(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> RoundsOptions | None:
    """Return how a learner goes whose recipe asks for rounds; None for a single training."""
    found = RoundsOptions(
        recipe_of(step.learner), None, path, spec.judges[0], in_process=True,
        specs=replace(options.specs, sets=_recipe_sets(step, spec, options.track)),
        calls=options.calls,
    )  # fmt: skip
    recipe = resolved(found)
    if recipe.rounds is None:
        return None
    if step.pooled or ":" in step.learner or step.after or step.learner in spec.after.values():
        raise SpecError(
            f"experiment {spec.name}: {step.called}: found {recipe.name}, which goes in rounds and "
            "logs its own; expected a recipe that learns from logs"
        )
    if step.rows is not None:
        raise SpecError(
            f"experiment {spec.name}: rows: found {step.rows} for {recipe.name}, which goes in "
            "rounds and logs its own; expected null"
        )
    return found


def train_options(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> TrainOptions:
    """Return how a learner is trained once on the run at `path`, or on those of all its cells."""
    return TrainOptions(
        recipe=recipe_of(step.learner),
        model=str(path / "checkpoints" / step.start) if step.start else None,
        run=tuple(path.parent / cell.name for cell in step.pooled) or (path,),
        judge=spec.judges[0],
        specs=replace(options.specs, sets=_recipe_sets(step, spec, options.track)),
        calls=options.calls,
        in_process=True,
    )


def _recipe_sets(step: Step, spec: ExperimentSpec, track: str | None) -> tuple[str, ...]:
    values = spec.sets_of(step.called)
    values.setdefault("fit.seed", step.cell.seed)
    if step.rows is not None:
        values["data.rows"] = step.rows
    if track is not None:
        values["fit.trackers"] = [track]
    return as_sets(values)
