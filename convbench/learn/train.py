"""Train a recipe on a judged run: resolve it, check it, prepare, fit, seal the checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from convbench import catalog
from convbench.catalog.read import read_yaml
from convbench.errors import SpecError, TrainError
from convbench.learn import launch as launching
from convbench.learn.job import Job, Preparation, TrainContext, TrainingData, load_rows
from convbench.learn.losses import describe_loss, load_objective
from convbench.learn.pairs import Pairs
from convbench.learn.place_recipe import (
    measure_rows,
    place_recipe,
    placement_lines,
    placement_note,
)
from convbench.learn.placement import (
    Machine,
    RowLengths,
    TrainingPlacement,
    pinned_settings,
    this_machine,
)
from convbench.learn.rows import preview_pairs, preview_rows
from convbench.learn.run_trainer import portable_recipe, run_trainer
from convbench.learn.steps import StepCount, batch_notes, row_limit, with_accumulation
from convbench.learn.weights import Weighted
from convbench.models.weights_path import (
    SHIPPED_REFS,
    check_model,
    member_weights,
    policy_weights,
    weights_of,
)
from convbench.options.specs import load_plugins
from convbench.options.train import TrainOptions
from convbench.schema import ModelConfig
from convbench.schema.recipe import LaunchSpec, Loss, Recipe
from convbench.store.checkpoint import RECIPE, TRAINING, Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.locks import LOCK, folder_lock
from convbench.store.run import Run, find_run
from convbench.tasks.draw import count_splits, format_counts

TRAINING_TRACES = ("checkpoint-*", "*/checkpoint-*", f"*/{TRAINING}")
"""Files in a checkpoint's folder that show that a training, or one of its preparation, began."""
SHOWN_ITEMS = 3
"""Pairs that a dry run shows."""
COUNTED_ITEMS = 2_000
"""Most items whose tokens a dry run counts; of more items it extrapolates from a sample."""
Item = TypeVar("Item")


@dataclass
class TrainResult:
    """Result of `train`, or of its dry run."""

    recipe: Recipe
    launch: LaunchSpec
    path: Path | None = None
    imported: bool = False
    """Whether it trained on imported conversations, which have no protocol to evaluate in."""
    notes: list[str] = field(default_factory=list)
    preview: list[str] = field(default_factory=list)
    """Lines that a dry run shows."""
    result_lines: list[tuple[str, str]] = field(default_factory=list)
    """(label, line) pairs on the result, from the learner's preparation."""


def train_recipe(options: TrainOptions) -> TrainResult:
    """Train a recipe on a run, or on several as one log (without any, on the newest); return the
    result.

    The checkpoint is written to `result.path`. A dry run writes nothing: `path` is None, and
    `preview` has its lines. Raise TrainError, RunError, SpecError, before torch is loaded for
    everything that can be checked; a failed worker raises TrainError with its reason.
    """
    load_plugins(options.specs)
    runs = [find_run(path) for path in options.run or (None,)]
    run = runs[0]
    recipe_sets, launch_sets = split_sets(options.specs.sets)
    recipe = resolve_recipe(options, runs, recipe_sets)
    if recipe.runs and needs_one_run(recipe):
        raise TrainError(
            f"recipe {recipe.name!r}: found {len(runs)} runs, and it samples or trains something "
            "of one first; expected one --run"
        )
    launch, notes = choose_launch(
        options, recipe, launch_sets, launching.count_accelerators(options.calls)
    )
    placement, stated_batch = _place_on_runs(options, runs, recipe, launch), recipe.fit.batch
    if placement is not None:
        recipe, launch, notes = adopt_placement(placement, options, notes)
    module = launching.load_trainer(launching.locate_trainer(recipe.trainer or ""))
    keep_size = getattr(module, "ROWS_STAY", False)
    recipe = with_accumulation(recipe, launch.process_count, keep_size=keep_size)
    notes += batch_notes(stated_batch, recipe.fit, launch.process_count)
    result = TrainResult(recipe, launch, imported=run.manifest.kind == "import", notes=notes)
    split_counts = count_splits(question.split for question in run.questions.values())
    if not split_counts["test"] and not result.imported:
        notes.append(
            f"no question of split test ({format_counts(split_counts)}): there is nothing to "
            "evaluate on"
        )
    job = Job(recipe, free_folder(options, run, recipe))
    context = TrainContext(options.calls, options.specs, launch, options.in_process)
    if options.dry_run:
        preparation = _find_preparation(module, job, context)
        if preparation is not None and not preparation.is_ready():
            result.preview = list(preparation.describe_work())
        else:
            data = trainer_data(module, job)
            result.preview = list(describe_training(job, data, module, launch.process_count))
        result.preview += placement_lines(placement, recipe)
        return result
    with ExitStack() as held:
        for log_run in runs:
            lock = held.enter_context(log_run.read_lock("training on this run"))
            context.locks.extend([] if lock is None else [lock])
        _prepare_and_fit(module, job, context, result)
    result.path = job.folder
    return result


def trainer_data(module: ModuleType, job: Job) -> TrainingData:
    """Return the trainer's data.

    Raise TrainError for settings of `loss` or for `fit.packing` if the trainer has a loss of its
    own, for a `weighting.reward` other than `conversation` if it does not weight turns, and as
    `Job.training_data` does. Raise SpecError as `load_objective` does. Not every setting that a
    trainer ignores is refused: `pairing` is not by a trainer of weighted rows.
    """
    load_objective(job.recipe.loss)
    data = job.training_data(module)
    has_own_loss = not isinstance(data, Weighted) or getattr(module, "OWN_LOSS", False)
    if has_own_loss and job.recipe.loss != Loss():
        raise TrainError(
            f"recipe {job.recipe.name!r}: found settings of `loss`, which trainer "
            f"{job.recipe.trainer} does not use; expected a learner of weighted rows, such as "
            "swift"
        )
    if has_own_loss and job.recipe.fit.packing:
        raise TrainError(
            f"recipe {job.recipe.name!r}: found fit.packing, and trainer {job.recipe.trainer} pads "
            "its own rows; expected false, or a learner of weighted rows, such as swift"
        )
    weighs_turns = isinstance(data, Weighted) and data.by_turn
    reward = job.recipe.weighting.reward
    if reward != "conversation" and not weighs_turns:
        raise TrainError(
            f"recipe {job.recipe.name!r}: weighting.reward: found {reward}, but this recipe "
            "does not weight turns; expected conversation; refit, swift and trainer weighted do"
        )
    return data


def _find_preparation(module: ModuleType, job: Job, context: TrainContext) -> Preparation | None:
    """Return the learner's preparation, or None if it needs none."""
    preparation: Preparation | None = getattr(module, "prepare", lambda job, context: None)(
        job, context
    )
    return preparation


def _prepare_and_fit(
    module: ModuleType, job: Job, context: TrainContext, result: TrainResult
) -> None:
    """Prepare and train with the checkpoint's folder locked; data that can be checked are checked
    before the folder is made."""
    preparation = _find_preparation(module, job, context)
    if (
        preparation
        and not preparation.is_ready()
        and (result.launch.accelerate or {}).get("num_machines", 1) > 1
    ):
        raise TrainError(
            f"recipe {job.recipe.name!r} samples or trains something first, which one machine "
            "does: train it on one first"
        )
    data: TrainingData | None = None if preparation else trainer_data(module, job)
    with lock_checkpoint(job, context.launch) as lock:
        context.locks.append(lock)
        result.notes += preparation.do_work() if preparation else []
        data = data or trainer_data(module, job)
        selection = data.selection
        result.notes += [*selection.unfit_reasons(), *selection.flagged.describe(), *ties_of(data)]
        run_trainer(job, context, data)
        result.result_lines = list(preparation.result_lines()) if preparation else []


@contextmanager
def lock_checkpoint(job: Job, launch: LaunchSpec) -> Iterator[int]:
    """Make and lock the checkpoint's folder and yield the lock's descriptor.

    Machines that share the folder have a lock each, by their rank. Raise RunError if another
    training holds it, TrainError if it holds a finished checkpoint.
    """
    rank = launching.rank_of(launch)
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(job.folder, error) from None
    name = f"{LOCK}-{rank}" if rank else LOCK
    with folder_lock(
        job.folder, "training into this folder", ", or name another with --out", name=name
    ) as lock:
        if Checkpoint(job.folder).is_finished:
            raise TrainError(f"{job.folder}: another process has just finished this checkpoint")
        yield lock


def check_trainable(options: TrainOptions, policy: ModelConfig | None = None) -> Recipe:
    """Return the recipe of a training after checking, before there is a run, that it could start
    here. Raises SpecError, TrainError, MissingDependency.

    `policy` is the policy of the run to come, if the training starts from its weights.
    """
    recipe_sets, launch_sets = split_sets(options.specs.sets)
    recipe = load_recipe(options, recipe_sets)
    launching.locate_trainer(recipe.trainer or "")
    choose_launch(options, recipe, launch_sets, launching.count_accelerators(options.calls))
    if policy is not None and not (options.model or recipe.model):
        member_weights(policy, f"train {recipe.name}")
    return recipe


def needs_one_run(recipe: Recipe) -> bool:
    """Return True if a recipe learns from a single run only.

    Its trainer says so, which is run for this. Raise SpecError if there is none.
    """
    module = launching.load_trainer(launching.locate_trainer(recipe.trainer or ""))
    return bool(getattr(module, "ONE_RUN", False))


def train_once(options: TrainOptions, folder: Path) -> Path:
    """Train into a folder unless it holds a finished checkpoint; return the folder."""
    if not Checkpoint(folder).is_finished:
        train_recipe(replace(options, out=folder))
    return folder


def split_sets(pairs: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `--set` pairs as (settings of the recipe, settings of the launch file), values by
    dotted key.

    `launch.KEY` becomes `accelerate.KEY` of the latter; the prefix `recipe.` is removed. Raise
    SpecError for a pair that cannot be read.
    """
    recipe: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    for key, value in catalog.parse_sets(pairs).items():
        if key.startswith("launch."):
            launch["accelerate." + key.removeprefix("launch.")] = value
        else:
            recipe[key.removeprefix("recipe.")] = value
    return recipe, launch


def load_recipe(options: TrainOptions, sets: dict[str, Any]) -> Recipe:
    """Return the options' recipe with these settings; `fit.batch` is null if only
    `fit.accumulation` is set.

    Raise TrainError for a recipe that trains nothing, SpecError for an unknown or invalid one.
    """
    if "fit.accumulation" in sets and "fit.batch" not in sets:  # the user's own takes precedence
        sets = {**sets, "fit.batch": None}
    recipe = catalog.load_spec(
        Recipe, "recipes", options.recipe, specs=options.specs.folders, sets=sets
    )
    if recipe.trainer is None:
        raise TrainError(
            f"recipe {recipe.name!r} trains nothing; evaluate the policy itself: convbench eval"
        )
    return recipe


def resolve_recipe(options: TrainOptions, runs: Sequence[Run], sets: dict[str, Any]) -> Recipe:
    """Return the recipe with runs, model and judge filled in; runs and local models as absolute
    paths.

    The model is that of the options, else the recipe's, else the first run's policy. Raise
    ConvbenchError if its weights are not available.
    """
    run = runs[0]
    recipe = load_recipe(options, sets)
    model = options.model or recipe.model or policy_weights(run.manifest)
    location = weights_of(model) or model
    check_model(location)
    folder = Path(location).expanduser()
    if model not in SHIPPED_REFS:
        model = str(folder.resolve()) if folder.is_dir() else location
    data = recipe.data.model_copy(update={"judge": options.judge or recipe.data.judge})
    return recipe.model_copy(
        update={
            "model": model,
            "run": str(run.path.resolve()),
            "runs": tuple(str(other.path.resolve()) for other in runs[1:]),
            "data": data,
        }
    )


def choose_launch(
    options: TrainOptions, recipe: Recipe, sets: dict[str, Any], gpus: int
) -> tuple[LaunchSpec, list[str]]:
    """Return (the launch, notes): the named launch, or the recipe's if this machine has enough
    accelerators, else `none` with a note.

    Settings (`sets`) do not apply to a launch without a launcher; a note says so. Raise TrainError
    if processes of a named launch would share an accelerator, SpecError for a launch that cannot be
    used, and, except in a dry run, MissingDependency for a missing package.
    """
    folders = options.specs.folders
    name = options.launch or recipe.launch
    launch, notes = catalog.load_spec(LaunchSpec, "launch", name, specs=folders), list[str]()
    if launch.accelerate is not None:
        launch = catalog.load_spec(LaunchSpec, "launch", name, specs=folders, sets=sets)
    elif sets:
        keys = ", ".join(f"launch.{key.removeprefix('accelerate.')}" for key in sets)
        notes = [f"{keys}: not used, launch {name!r} starts one process without a launcher"]
    processes_here = launch.process_count
    if launch.accelerate:
        processes_here //= int(launch.accelerate.get("num_machines") or 1)
    is_explicit = options.launch is not None
    fits = f"--launch {name} --set launch.num_processes={gpus}"
    if is_explicit and 0 < gpus < processes_here and not options.dry_run:
        raise TrainError(
            f"launch {name!r} starts {processes_here} processes here and has {gpus} accelerators: "
            "several "
            f"would share one; expected {fits}, or more with --devices"
        )
    if not is_explicit and processes_here > max(gpus, 1):
        hint = (
            f"here: {fits}"
            if gpus
            else f"on the CPU, in {processes_here} processes: --launch {name}"
        )
        notes = [
            f"launch {name!r} asks for {processes_here} accelerators and {gpus} are here: "
            "training in one "
            f"process (for {name} {hint})"
        ]
        launch = catalog.load_spec(LaunchSpec, "launch", "none", specs=folders)
    launching.check_launch(launch, recipe.fit)
    if not options.dry_run:
        launching.check_installed(launch, recipe)
    return launch, notes


def place_options(
    options: TrainOptions,
    recipe: Recipe,
    launch: LaunchSpec,
    lengths: RowLengths | None = None,
    machine: Machine | None = None,
) -> TrainingPlacement | None:
    """Return where the training of these options is placed on a machine (None: this one), with what
    the user set left as it is; None where the model's shape or the machine is unknown."""
    pinned = pinned_settings(options.launch, *split_sets(options.specs.sets))
    machine = machine or this_machine(launching.trainer_devices(options.calls))
    folders = options.specs.folders
    return place_recipe(recipe, launch, machine, pinned=pinned, specs=folders, lengths=lengths)


def _place_on_runs(
    options: TrainOptions, runs: Sequence[Run], recipe: Recipe, launch: LaunchSpec
) -> TrainingPlacement | None:
    """Return the placement of a training on runs; without accelerators their rows are read in a dry
    run only, since their length decides nothing."""
    lengths = None
    if options.dry_run or launching.count_accelerators(options.calls):
        lengths = measure_rows(runs, recipe, row_limit(recipe))
    return place_options(options, recipe, launch, lengths)


def planned_placement(
    options: TrainOptions,
    recipe: Recipe,
    model: str,
    lengths: RowLengths | None = None,
    machine: Machine | None = None,
) -> TrainingPlacement | None:
    """Return where a training that starts from a model will be placed, before there is a run. Raise
    what `choose_launch` does, TrainError if `fit.batch` is no multiple of `fit.batch_size`."""
    cards = launching.count_accelerators(options.calls) if machine is None else machine.cards
    launch, _ = choose_launch(options, recipe, split_sets(options.specs.sets)[1], cards)
    recipe = recipe.model_copy(update={"model": recipe.model or model})
    return place_options(options, recipe, launch, lengths, machine)


def adopt_placement(
    placement: TrainingPlacement, options: TrainOptions, notes: list[str]
) -> tuple[Recipe, LaunchSpec, list[str]]:
    """Return (recipe, launch, notes) as placed. Raise TrainError, except in a dry run, if nothing
    fits, and as `choose_launch` does for another launch."""
    refusal = placement.refusal_line()
    if refusal is not None and not options.dry_run:
        raise TrainError(
            f"recipe {placement.first.recipe.name!r}: {refusal}; expected a machine with more, or "
            "an adapter: --set lora.r=16"
        )
    chosen = placement.best if placement.does_fit else placement.first
    if chosen is not placement.first:
        launching.check_launch(chosen.launch, chosen.recipe.fit)
        if not options.dry_run:
            launching.check_installed(chosen.launch, chosen.recipe)
        notes = [placement_note(placement)]
    return chosen.recipe, chosen.launch, notes


def free_folder(options: TrainOptions, run: Run, recipe: Recipe) -> Path:
    """Return the folder for the checkpoint, `--out` if given; it is not made.

    Else it is that of an unfinished training of exactly this recipe, which resumes, or the first
    new one: RECIPE, RECIPE-2 and so on in the run's checkpoints. Raise TrainError if `--out` holds
    a finished checkpoint.
    """
    if options.out is not None:
        if Checkpoint(options.out).is_finished:
            raise TrainError(
                f"--out {options.out}: holds a checkpoint already; name another folder"
            )
        return options.out
    for number in itertools.count(1):
        folder = run.checkpoints_folder / (
            recipe.name if number == 1 else f"{recipe.name}-{number}"
        )
        if not Checkpoint(folder).is_finished and _is_free_or_same(Job(recipe, folder)):
            return folder
    raise AssertionError


def _is_free_or_same(job: Job) -> bool:
    """Return True if no training began in the folder, or one of exactly this recipe."""
    file = job.folder / RECIPE
    begun = any(trace for pattern in TRAINING_TRACES for trace in job.folder.glob(pattern))
    if not begun or not file.exists():
        return True
    try:
        stored = catalog.check_spec(Recipe, read_yaml(file), str(file))
    except SpecError:
        return False
    return stored == portable_recipe(job)


def ties_of(data: TrainingData) -> Iterator[str]:
    """Yield a line on tied tasks, for learners that take one conversation of each task."""
    if isinstance(data, Weighted | Pairs) and data.ties is not None:
        yield from data.ties.describe()


def _has_reasoning(weighted: Weighted) -> bool:
    conversations = (logged.conversation for logged, _ in weighted.items)
    return any(turn.reasoning is not None for talk in conversations for turn in talk.turns)


class PreviewSample:
    """The sample of many items that a dry run turns into tokens."""

    def __init__(self, count: int, limit: int = COUNTED_ITEMS) -> None:
        self.count = count
        self.share = min(1.0, limit / count)

    def pick_items(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the sampled items as a tuple, evenly spaced, first and last included; all if they
        are few enough."""
        size = round(self.count * self.share)
        if size == self.count:
            return tuple(items)
        return tuple(items[(self.count - 1) * n // (size - 1)] for n in range(size))

    def scale_up(self, count: int) -> int:
        """Return the count among all items that a count in the sample stands for."""
        return round(count / self.share)

    def describe(self, what: str, counts: Mapping[str, int]) -> Iterator[str]:
        """Yield lines with the counts among all items, and a line that they are extrapolated."""
        if self.share < 1:
            yield (
                f"{round(self.count * self.share):,} of {self.count:,} {what} are counted; the "
                "numbers below are extrapolated"
            )
        about = "about " if self.share < 1 else ""
        for name, count in counts.items():
            yield f"{name}: {about}{self.scale_up(count)}"


def describe_training(
    job: Job, data: TrainingData, trainer: ModuleType, processes: int = 1
) -> Iterator[str]:
    """Yield the lines of a dry run: counts, steps, then tokens, mask and weight of three items.

    A trainer that leaves rows out counts in `count_trained` those that it trains on.
    """
    yield from data.selection.describe(job.recipe.data.metric)
    for reason, count in data.skipped.items():
        yield f"omitted: {count} {reason}"
    yield from ties_of(data)
    mix = zip(job.recipe.data.mix, job.runs, strict=False)
    shares = ", ".join(f"{share:g} x {run.path.name}" for share, run in mix)
    if shares:
        yield f"mixed: {shares}"
    if isinstance(data, Pairs):
        preview_sample = PreviewSample(len(data.items))
        sample = replace(data, items=preview_sample.pick_items(data.items))
        pairs = load_rows(job, sample)
        ids = (token_ids for row in pairs.rows for token_ids in row.trainer_fields().values())
        yield from preview_sample.describe("pairs", {**pairs.counts, "tokens": sum(map(len, ids))})
        count = preview_sample.scale_up(len(pairs.rows))
        yield StepCount(count, "pair", job.recipe.fit, processes, drop_last=True).describe()
        yield from preview_pairs(pairs.rows[:SHOWN_ITEMS], job.chat)
        return
    if not isinstance(data, Weighted):
        yield from data.describe()
        return
    yield f"questions whose rewards do not differ: {data.flat_tasks:.1%}"
    if job.recipe.loss != Loss():
        yield describe_loss(job.recipe.loss)
    unit = job.recipe.data.unit
    preview_sample = PreviewSample(len(data.items))
    items = data.items
    if preview_sample.share < 1:  # the highest weight first; a stable sort
        items = sorted(items, key=lambda item: -item[1])
    sample_weighted = replace(data, items=preview_sample.pick_items(items))
    rows = load_rows(job, sample_weighted)
    yield from preview_sample.describe("conversations, evenly by weight,", rows.counts)
    several = rows.counts["conversations of several rows"]
    if several and unit == "conversation":
        yield (
            f"the chat template is not prefix-stable for {several} of "
            f"{rows.counts['conversations']} conversations (a later prompt does not begin with "
            f"the row before it): {rows.counts['rows']} rows"
        )
    if not job.chat.frame.known and _has_reasoning(sample_weighted):
        yield "the chat template shows no reasoning: it is written in <think> tags"
    fit, all_rows = job.recipe.fit, rows.rows
    trained = getattr(trainer, "count_trained", lambda weights, fit: len(weights))(
        [row.weight for row in all_rows], fit
    )
    drop_last = getattr(trainer, "STEP", "") == "preference"
    count = preview_sample.scale_up(trained)
    yield StepCount(count, unit, fit, processes, drop_last=drop_last).describe()
    shown = sorted(rows.rows, key=lambda row: -row.weight)
    picked = {0, len(shown) // 2, len(shown) - 1}
    yield from preview_rows([shown[i] for i in sorted(picked)], job.chat)
