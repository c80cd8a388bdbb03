"""`experiment`: a whole table from one file, resumable at every step."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.commands.build import build
from convbench.commands.judge import judge
from convbench.commands.report import ReportResult, report
from convbench.commands.train import train_rounds
from convbench.errors import RunError, SpecError
from convbench.judge.all import judge_with_model
from convbench.judge.evaluate import check_evaluation, evaluate
from convbench.judge.ready import ready
from convbench.learn.rounds import recipe_of
from convbench.learn.start import train_once, trainable
from convbench.models.open import policy_or_default
from convbench.options.build import BuildOptions
from convbench.options.demo import ExperimentOptions
from convbench.options.evaluate import EvalOptions
from convbench.options.judge import JudgeOptions
from convbench.options.report import ReportOptions
from convbench.options.shared import Shape
from convbench.options.specs import as_sets
from convbench.options.train import RoundsOptions, TrainOptions
from convbench.rollout.calls import check_outcome, share_ledger
from convbench.rollout.cast import make_member
from convbench.rollout.preview import Preview
from convbench.schema import Member
from convbench.schema.experiment import ExperimentSpec
from convbench.schema.noun import Mode
from convbench.store.checkpoint import Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.locks import folder_lock

BASE = "base"
"""The learner that trains nothing: the run's own test conversations."""


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: a combination of all that is varied but learners and sizes."""

    task: str
    mode: Mode
    protocol: str | None
    turns: int | None
    seed: int

    @property
    def name(self) -> str:
        """Folder name."""
        parts = [
            self.task,
            self.protocol or "",
            self.mode,
            f"n{self.turns}" if self.turns else "",
            f"seed{self.seed}",
        ]
        return "-".join(part for part in parts if part)


@dataclass(frozen=True)
class ExperimentStep:
    """One step: `build`, `judge`, `train` or `eval` in one cell."""

    cell: Cell
    step: str
    learner: str = ""
    rows: int | None = None

    @property
    def name(self) -> str:
        """Its step, and of what."""
        return f"{self.step} {self.checkpoint}".strip()

    @property
    def checkpoint(self) -> str:
        """Folder name of the checkpoint."""
        return self.learner if self.rows is None else f"{self.learner}-{self.rows}"


@dataclass
class Planned:
    """What an experiment would do."""

    jobs: list[ExperimentStep]
    previews: dict[str, Preview] = field(default_factory=dict)
    """First build of each task and mode: calls and cost."""


@dataclass
class ExperimentResult:
    """Where an experiment's runs lie."""

    spec: ExperimentSpec
    root: Path
    runs: list[Path] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Words on what failed in a step, where that was not too much."""
    planned: Planned | None = None
    report: ReportResult | None = None


def cells(spec: ExperimentSpec) -> Iterator[Cell]:
    """Yield the runs of an experiment."""
    for values in itertools.product(spec.tasks, spec.modes, spec.protocols, spec.turns, spec.seeds):
        yield Cell(*values)


def plan(spec: ExperimentSpec) -> list[ExperimentStep]:
    """Return every step in order; all learners of a cell follow its build and judging."""
    jobs: list[ExperimentStep] = []
    for cell in cells(spec):
        jobs += [ExperimentStep(cell, "build"), ExperimentStep(cell, "judge")]
        for learner in spec.learners:
            if learner == BASE:
                continue
            for rows in spec.rows:
                jobs += [
                    ExperimentStep(cell, "train", learner, rows),
                    ExperimentStep(cell, "eval", learner, rows),
                ]
    return jobs


def experiment(options: ExperimentOptions) -> ExperimentResult:
    """Run an experiment, or go on where it stopped: finished steps are skipped.

    Raises ConvbenchError subclasses; KeyboardInterrupt where a step was interrupted.
    """
    spec = _load(options.name, options, catalog.parse_sets(options.specs.sets))
    parts = [spec, *(_load(name, options, {}) for name in spec.also)]
    root = options.root or Path("runs") / "experiments" / spec.name
    result = ExperimentResult(spec, root)
    inner = replace(options, specs=replace(options.specs, sets=()))
    for part in parts:
        for job in plan(part):
            if job.step == "train":
                _rounds(job, part, root, inner)  # refuses what cannot be, before hours of work
    if options.dry_run:
        result.planned = Planned([job for part in parts for job in plan(part)])
        for part in parts:
            result.planned.previews.update(_previews(part, inner))
        return result
    inner = replace(inner, calls=share_ledger(options.calls, root))
    for part in parts:
        preflight(part, root, inner)
    with _alone(root):
        for part in parts:
            for job in plan(part):
                lost = [line for line in _do(job, part, root, inner) if line]
                result.failures += [f"{job.cell.name}: {job.name}: {line}" for line in lost]
    result.runs = [root / cell.name for part in parts for cell in cells(part)]
    pool = len(spec.seeds) > 1
    result.report = report(ReportOptions(tuple(result.runs), pool=pool))
    return result


def preflight(spec: ExperimentSpec, root: Path, options: ExperimentOptions) -> None:
    """Refuse an experiment of which a later step would lack a key, a package or weights, before
    its first step: ConvbenchError subclasses. What is done already needs nothing any more."""
    undone = [job for job in plan(spec) if not _done(job, root / job.cell.name)]
    if not undone:
        return
    calls = replace(options.calls, api_base=None)
    ready([judge_with_model(name, options.specs, calls) for name in spec.judges], calls)
    policy = _policy(spec, options)
    for job in undone:
        if job.step == "train":
            trainable(_training(job, spec, root / job.cell.name, options), policy)


def _done(job: ExperimentStep, path: Path) -> bool:
    """Whether a step left what it leaves last; building and judging are looked at when they come,
    for they may have failures to try again."""
    if job.step == "train":
        return Checkpoint(path / "checkpoints" / job.checkpoint).finished
    child = path / "evals" / job.checkpoint
    return (child if job.step == "eval" else path).joinpath("verdicts.jsonl").exists()


def _policy(spec: ExperimentSpec, options: ExperimentOptions) -> Member:
    """Return the policy that has the conversations."""
    calls, folders = options.calls, options.specs.folders
    name = policy_or_default(
        spec.model, api_base=calls.api_base, vllm_python=calls.vllm_python, specs=folders
    )
    return make_member(name, None, calls.api_base, options.specs)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    """Hold an experiment's folder, from beside it: a second process would break a step of the
    first one, between whose steps no run is held."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(root.parent, error) from None
    with folder_lock(
        root.parent, f"doing the experiment in {root.name}", name=f".{root.name}.lock"
    ):
        yield


def _load(name: str, options: ExperimentOptions, sets: dict[str, Any]) -> ExperimentSpec:
    return catalog.load(ExperimentSpec, "experiments", name, specs=options.specs.folders, sets=sets)


def _do(
    job: ExperimentStep, spec: ExperimentSpec, root: Path, options: ExperimentOptions
) -> Sequence[str | None]:
    """Do one step; what is done already costs a look at the disk. Return words on what failed.

    Where a step is stopped or too much of it failed, that is raised: the same command goes on
    from there.
    """
    path = root / job.cell.name
    if job.step == "build":
        built = build(_build_options(job.cell, spec, path, options)).built
        assert built is not None
        return [check_outcome(built.jobs, options.calls, "conversations", built.failures)]
    # The address is that of the policy the experiment starts from: neither a judge nor a
    # checkpoint that was trained here is served there.
    options = replace(options, calls=replace(options.calls, api_base=None))
    if job.step == "judge":
        asked = JudgeOptions(spec.judges, path, specs=options.specs, calls=options.calls)
        return [
            check_outcome(one.jobs, options.calls, f"verdicts of {one.name}", one.failures)
            for one in judge(asked).judged
        ]
    if (loop := _rounds(job, spec, path, options)) is not None:
        if job.step == "train":  # which evaluates every round too
            train_rounds(loop)
    elif job.step == "train":
        training = _training(job, spec, path, options)
        train_once(training, path / "checkpoints" / job.checkpoint)
    else:
        folder = path / "checkpoints" / job.checkpoint
        done = evaluate(EvalOptions(str(folder), path, specs=options.specs, calls=options.calls))
        return [*check_evaluation(done, options.calls)]
    return []


def _build_options(
    cell: Cell, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> BuildOptions:
    sets = as_sets(spec.sets)
    if (path / "run.json").exists():
        return BuildOptions(run=path, tested=True, calls=options.calls)
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
        ),
        model=spec.model,
        teacher=spec.teacher,
        run=path,
        tested=True,
        specs=replace(options.specs, sets=sets),
        calls=options.calls,
    )


def _rounds(
    job: ExperimentStep, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> RoundsOptions | None:
    """Return how a learner goes whose recipe asks for rounds; None for a single training."""
    found = RoundsOptions(
        job.learner, None, path, spec.judges[0], in_process=True,
        specs=replace(options.specs, sets=_recipe_sets(job, spec)), calls=options.calls,
    )  # fmt: skip
    recipe = recipe_of(found)
    if recipe.rounds is None:
        return None
    if job.rows is not None:
        raise SpecError(
            f"experiment {spec.name}: rows: found {job.rows} for {recipe.name}, which goes in "
            "rounds and logs its own; expected null"
        )
    return found


def _recipe_sets(job: ExperimentStep, spec: ExperimentSpec) -> tuple[str, ...]:
    values = spec.sets_of(job.learner)
    values.setdefault("fit.seed", job.cell.seed)
    if job.rows is not None:
        values["data.rows"] = job.rows
    return as_sets(values)


def _training(
    job: ExperimentStep, spec: ExperimentSpec, path: Path, options: ExperimentOptions
) -> TrainOptions:
    return TrainOptions(
        recipe=job.learner,
        run=path,
        judge=spec.judges[0],
        specs=replace(options.specs, sets=_recipe_sets(job, spec)),
        calls=options.calls,
        in_process=True,
    )


def _previews(spec: ExperimentSpec, options: ExperimentOptions) -> dict[str, Preview]:
    """Return calls and cost of the first build of each task and mode."""
    found: dict[str, Preview] = {}
    for cell in cells(spec):
        name = f"{cell.task} {cell.protocol or ''} {cell.mode}"
        if name in found or cell.seed != spec.seeds[0]:
            continue
        asked = _build_options(cell, spec, Path("nowhere") / cell.name, options)
        preview = build(replace(asked, run=None, dry_run=True)).preview
        if preview is None:
            raise RunError(f"{name}: no preview")
        found[name] = preview
    return found
