"""List the cells of an experiment and their steps in order, and make the options of each step."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from convbench.errors import ConvbenchError, SpecError
from convbench.experiments.evaluate import evaluation_name
from convbench.experiments.rounds import rounds_recipe
from convbench.models.aliases import resolve
from convbench.options.build import BuildOptions
from convbench.options.experiment import ExperimentOptions
from convbench.options.shared import CallOptions, RunSettings, devices_as_pairs, parse_devices
from convbench.options.specs import as_sets
from convbench.options.train import RoundsOptions, TrainOptions
from convbench.schema import TaskSpec, fingerprint
from convbench.schema.base import Mode
from convbench.schema.experiment import POOLED, ExperimentSpec, recipe_of
from convbench.tasks.load import LoadResult, load_examples

BASE = "base"
"""The learner that trains nothing: its results are the run's own test conversations."""
SHOWN = 6
"""Most cells that the error on an unknown one names."""


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: one combination of what varies, except learners and sizes."""

    task: str
    mode: Mode
    protocol: str | None
    turns: int | None
    seed: int

    @property
    def name(self) -> str:
        """Name of the run's folder: task, protocol, mode, `nTURNS` and `seedSEED` joined by `-`,
        without what is None."""
        parts = [
            self.task,
            self.protocol or "",
            self.mode,
            f"n{self.turns}" if self.turns else "",
            f"seed{self.seed}",
        ]
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class Step:
    """One step: `build`, `judge`, `train` or `eval` in one cell."""

    cell: Cell
    kind: str
    learner: str = ""
    rows: int | None = None
    after: str = ""
    """The learner from whose checkpoint it starts; "" for the policy's own weights."""
    pooled: tuple[Cell, ...] = ()
    """Cells whose logs are merged, for a learner of several; the folder of the first has the
    checkpoint."""
    policy: str = ""
    """The model that an `eval` evaluates in place of a checkpoint: one that is not trained."""

    @property
    def name(self) -> str:
        """`KIND CHECKPOINT`, or the kind alone for `build` and `judge`."""
        return f"{self.kind} {self.checkpoint}".strip()

    @property
    def checkpoint(self) -> str:
        """Folder name of the checkpoint: the learner's name, `-` in place of `:`, and `-ROWS` if it
        has a size; of an untrained model's evaluation; "" for `build` and `judge`."""
        if self.policy:
            return evaluation_name(self.policy)
        return self._folder_name(self.settings_name)

    @property
    def start_checkpoint(self) -> str | None:
        """Folder name of the checkpoint that its training starts from; None for the policy's own
        weights."""
        return self._folder_name(self.after) if self.after else None

    def _folder_name(self, learner: str) -> str:
        name = learner.replace(":", "-")
        return name if self.rows is None else f"{name}-{self.rows}"

    @property
    def settings_name(self) -> str:
        """Name of the learner in the experiment's settings and in its folder, with prefix `pooled-`
        for one of several logs."""
        return f"{POOLED}{self.learner}" if self.pooled else self.learner

    @property
    def home_cell(self) -> Cell:
        """The cell whose folder has the checkpoint."""
        return self.pooled[0] if self.pooled else self.cell

    @property
    def address(self) -> str:
        """`CELL/KIND` or `CELL/KIND/CHECKPOINT`, as `--only` and `--from` take it."""
        return "/".join(part for part in (self.cell.name, self.kind, self.checkpoint) if part)

    def required_steps(self) -> tuple[str, ...]:
        """Return the addresses of the steps that this one needs directly; not what those need in
        turn.

        `build` needs none, and `judge` its cell's build. A training needs build and judge of its
        cell, or of every pooled cell, then the training that it starts from. An evaluation needs
        build and judge of its own cell, then, unless its model is untrained, its checkpoint's
        training.
        """
        own_log = [f"{self.cell.name}/build", f"{self.cell.name}/judge"]
        logs = [f"{cell.name}/{kind}" for cell in self.pooled for kind in ("build", "judge")]
        start_training = (
            [f"{self.cell.name}/train/{self.start_checkpoint}"] if self.start_checkpoint else []
        )
        trained = [*(logs or own_log), *start_training]
        needed = {"build": [], "judge": own_log[:1], "train": trained}.get(self.kind)
        if self.policy:
            needed = own_log
        elif needed is None:
            needed = [*own_log, f"{self.home_cell.name}/train/{self.checkpoint}"]
        return tuple(needed)


@dataclass(frozen=True)
class PlannedStep:
    """A step, and the experiment with the settings of its cell."""

    step: Step
    spec: ExperimentSpec


def iter_cells(spec: ExperimentSpec) -> Iterator[Cell]:
    """Yield every combination of task, mode, protocol, turns and seed, in the spec's order; the
    seed varies fastest."""
    for values in itertools.product(spec.tasks, spec.modes, spec.protocols, spec.turns, spec.seeds):
        yield Cell(*values)


def plan_steps(spec: ExperimentSpec) -> list[PlannedStep]:
    """Return every step in order, each with the experiment's settings for its cell.

    Each cell has `build`, `judge`, `eval` for every model that is not trained, then for every
    learner and size `train` and `eval`; learner `base` has neither. Last come the learners of
    pooled cells: a training on all tasks' logs, then its evaluation in each cell.
    """
    plan: list[PlannedStep] = []
    for cell in iter_cells(spec):
        cell_spec = spec.for_cell(**vars(cell))
        steps = [Step(cell, "build"), Step(cell, "judge")]
        steps += [Step(cell, "eval", policy=name) for name in spec.policies]
        for learner, rows in itertools.product(spec.learners, spec.rows):
            if learner != BASE:
                training = Step(cell, "train", learner, rows, cell_spec.after.get(learner) or "")
                steps += [training, replace(training, kind="eval")]
        plan += [PlannedStep(step, cell_spec) for step in steps]
    return plan + [PlannedStep(step, spec) for step in _pooled_steps(spec)]


def _pooled_steps(spec: ExperimentSpec) -> Iterator[Step]:
    """Yield the steps of learners of all tasks' logs, which follow all cells."""
    cells_by_setting: dict[Cell, list[Cell]] = {}
    for cell in iter_cells(spec):
        cells_by_setting.setdefault(replace(cell, task=""), []).append(cell)
    for logs, learner in itertools.product(cells_by_setting.values(), spec.pooled):
        training = Step(logs[0], "train", learner, pooled=tuple(logs))
        yield training
        yield from (replace(training, cell=cell, kind="eval") for cell in logs)


def choose_steps(
    plan: Sequence[PlannedStep], only: Sequence[str], start: str | None
) -> list[PlannedStep]:
    """Return the steps that `--only` and `--from` select, in the order of the plan; by default all.

    `start` selects the first step that it matches and all later ones, whatever their cell. A step
    must also match one of the patterns in `only`, if there are any. A pattern matches a whole
    address or its first parts, e.g. a cell. Raise SpecError for one that matches no step of the
    plan.
    """
    chosen_steps = list(plan)
    if start is not None:
        first = next(
            (at for at, planned in enumerate(chosen_steps) if _matches_step(planned.step, start)),
            None,
        )
        if first is None:
            raise _unknown_step("--from", start, plan)
        chosen_steps = chosen_steps[first:]
    for pattern in only:
        if not any(_matches_step(planned.step, pattern) for planned in plan):
            raise _unknown_step("--only", pattern, plan)
    return [
        planned
        for planned in chosen_steps
        if not only or any(_matches_step(planned.step, text) for text in only)
    ]


def _matches_step(step: Step, pattern: str) -> bool:
    """Return True if a pattern matches a step's address or a part that begins it, e.g. its cell."""
    pattern = pattern.strip("/")
    return fnmatchcase(step.address, pattern) or fnmatchcase(step.address, f"{pattern}/*")


def _unknown_step(flag: str, pattern: str, plan: Sequence[PlannedStep]) -> SpecError:
    names = list(dict.fromkeys(planned.step.cell.name for planned in plan))
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return SpecError(
        f"{flag} {pattern}: found no such cell or step; expected a cell, or one of its steps (e.g. "
        f"{names[0]}/judge, '*/train/*'); cells: {', '.join(names[:SHOWN])}{rest}"
    )


def without_address(options: ExperimentOptions) -> ExperimentOptions:
    """Return the options without `api_base`, which is the address of the policy that the experiment
    starts from: neither judges nor checkpoints trained here are served there."""
    return replace(options, calls=replace(options.calls, api_base=None))


def build_options(
    cell: Cell, spec: ExperimentSpec, path: Path | None, options: ExperimentOptions
) -> BuildOptions:
    """Return the options of a cell's build; `path` is the run's folder."""
    return BuildOptions(
        task=cell.task,
        protocol=cell.protocol,
        tasks=spec.count,
        shape=RunSettings(
            mode=cell.mode,
            turns=cell.turns,
            samples=spec.samples,
            temperatures=spec.temperatures,
            max_tokens=spec.max_tokens,
            seed=cell.seed,
        ),
        model=spec.model,
        teacher=spec.teacher,
        run=path,
        tested=True,
        specs=replace(options.specs, sets=as_sets(spec.sets)),
        calls=options.calls,
    )


def model_reference(name: str, folders: Sequence[Path]) -> str:
    """Return the reference that a model's name stands for; "" if it stands for none, which the
    preflight reports."""
    try:
        return resolve(name, specs=folders).ref
    except ConvbenchError:
        return ""


def with_teacher_devices(step: Step, spec: ExperimentSpec, calls: CallOptions) -> CallOptions:
    """Return the options of a step's calls. A model that is evaluated untrained and is the
    teacher's gets the teacher's devices, so that one server answers for both."""
    devices = parse_devices(calls.devices)
    if not step.policy or spec.teacher is None or devices.teacher is None:
        return calls
    refs = {model_reference(name, calls.specs) for name in (step.policy, spec.teacher)}
    if len(refs) > 1:
        return calls
    roles: dict[str, Any] = {
        name: {role: value for role, value in setting.items() if role != "policy"}
        | ({"policy": setting["teacher"]} if "teacher" in setting else {})
        for name, setting in (("share", devices.share), ("vllm", devices.vllm))
    }
    shared = devices.model_copy(update={"policy": devices.teacher, **roles})
    return replace(calls, devices=devices_as_pairs(shared))


def rounds_options(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> RoundsOptions | None:
    """Return the options of a learner whose recipe has rounds; None for a single training. Raises
    SpecError if the experiment asks for what rounds cannot do."""
    rounds = RoundsOptions(
        recipe_of(step.learner),
        None,
        path,
        spec.judges[0],
        in_process=True,
        label=step.learner.partition(":")[2],
        specs=replace(options.specs, sets=_recipe_sets(step, spec)),
        calls=options.calls,
    )
    recipe = rounds_recipe(rounds)
    if recipe.rounds is None:
        return None
    if others := recipe.args.get("others"):
        raise SpecError(
            f"experiment {spec.name}: {step.settings_name}: args.others: found {others}; in an "
            f"experiment other models are named in policies: --set 'policies={json.dumps(others)}'"
        )
    if step.pooled or step.after or step.learner in spec.after.values():
        raise SpecError(
            f"experiment {spec.name}: {step.settings_name}: found {recipe.name}, which trains in "
            "rounds and generates its own logs; expected a recipe that learns from logs"
        )
    if step.rows is not None:
        raise SpecError(
            f"experiment {spec.name}: rows: found {step.rows} for {recipe.name}, which trains in "
            "rounds and generates its own logs; expected null"
        )
    return rounds


def train_options(
    step: Step, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> TrainOptions:
    """Return the options of a single training in this process, on the run at `path` or on all
    pooled runs beside it.

    The judge is the experiment's first. `fit.seed` is the cell's unless the experiment sets it.
    """
    return TrainOptions(
        recipe=recipe_of(step.learner),
        model=str(path / "checkpoints" / step.start_checkpoint) if step.start_checkpoint else None,
        run=tuple(path.parent / cell.name for cell in step.pooled) or (path,),
        judge=spec.judges[0],
        specs=replace(options.specs, sets=_recipe_sets(step, spec)),
        calls=options.calls,
        in_process=True,
    )


def _recipe_sets(step: Step, spec: ExperimentSpec) -> tuple[str, ...]:
    values = spec.sets_of(step.settings_name)
    values.setdefault("fit.seed", step.cell.seed)
    if step.rows is not None:
        values["data.rows"] = step.rows
    return as_sets(values | {f"launch.{key}": value for key, value in spec.launch.items()})


_QUESTIONS: dict[str, LoadResult | ConvbenchError] = {}


def read_questions(task: TaskSpec, seed: int) -> LoadResult:
    """Return the drawn questions of a task, as `load_examples` does; they, or the error, are cached
    until the cache is cleared."""
    name = fingerprint(task, seed)
    if name not in _QUESTIONS:
        try:
            _QUESTIONS[name] = load_examples(task, seed)
        except ConvbenchError as error:
            _QUESTIONS[name] = error
    outcome = _QUESTIONS[name]
    if isinstance(outcome, ConvbenchError):
        raise outcome
    return outcome


def forget_questions() -> None:
    """Clear the cache of questions: another experiment may find other rows."""
    _QUESTIONS.clear()
