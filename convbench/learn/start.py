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
from convbench.catalog.read import read
from convbench.errors import SpecError, TrainError
from convbench.learn import launch as launching
from convbench.learn.job import Job, Learnt, Means, Preparation, rows_of
from convbench.learn.launch import Meeting, meeting, on_machines
from convbench.learn.losses import describe as said_of_loss
from convbench.learn.losses import objective
from convbench.learn.pairs import Pairs
from convbench.learn.rows import preview, preview_pairs
from convbench.learn.sealed import seal_checkpoint
from convbench.learn.steps import Steps, in_batches
from convbench.learn.together import train_together, written
from convbench.learn.trainers import portable_recipe, start
from convbench.learn.weights import Weighted
from convbench.models.where import OURS, check_model, member_weights, named, policy_weights
from convbench.options.specs import load_plugins
from convbench.options.train import TrainOptions
from convbench.schema import Member
from convbench.schema.recipe import Launch, Loss, Recipe
from convbench.store.checkpoint import RECIPE, TRAINING, Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.locks import LOCK, folder_lock
from convbench.store.run import Run, find_run
from convbench.tasks.draw import counted, listed

BEGUN = ("checkpoint-*", "*/checkpoint-*", f"*/{TRAINING}")
"""Files in a checkpoint's folder that show that a training, or one of its preparation, began."""
SHOWN = 3
"""Pairs that a dry run shows."""
TRIED = 2_000
"""Most items whose tokens a dry run counts; of more items it extrapolates from a sample."""
Item = TypeVar("Item")


@dataclass
class TrainResult:
    """Result of `train`, or of its dry run."""

    recipe: Recipe
    launch: Launch
    path: Path | None = None
    imported: bool = False
    """Whether it trained on imported conversations, which have no protocol to evaluate in."""
    notes: list[str] = field(default_factory=list)
    preview: list[str] = field(default_factory=list)
    """Lines that a dry run shows."""
    told: list[tuple[str, str]] = field(default_factory=list)
    """(label, line) pairs on the result, from the learner's preparation."""


def train(options: TrainOptions) -> TrainResult:
    """Train a recipe on a run, or on several as one log.

    Raises TrainError, RunError, SpecError, before torch is loaded for everything that can be
    checked; a failed worker raises TrainError with its last lines.
    """
    load_plugins(options.specs)
    runs = [find_run(path) for path in options.run or (None,)]
    run = runs[0]
    recipe_sets, launch_sets = sort_sets(options.specs.sets)
    recipe = resolve(options, runs, recipe_sets)
    if recipe.runs and of_one_run(recipe):
        raise TrainError(
            f"recipe {recipe.name!r}: found {len(runs)} runs, and it samples or trains something "
            "of one first; expected one --run"
        )
    launch, notes = choose_launch(
        options, recipe, launch_sets, launching.accelerators(options.calls)
    )
    if options.nodes is not None:
        others = Meeting(0, options.nodes, "the first machine", 0)
        launch = on_machines(launch, others if options.together else meeting(options.nodes))
    recipe = in_batches(recipe, launch.processes)
    result = TrainResult(recipe, launch, imported=run.manifest.kind == "import", notes=notes)
    found = counted(question.split for question in run.questions.values())
    if not found["test"] and not result.imported:
        notes.append(f"no question of split test ({listed(found)}): eval has nothing to ask")
    module = launching.load(launching.locate(recipe.trainer or ""))
    job = Job(recipe, free_folder(options, run, recipe))
    means = Means(options.calls, options.specs, launch, options.in_process, spread=options.spread)
    said = options.spread.shards is not None or options.spread.on is not None
    if options.nodes is None and said and not of_one_run(recipe):
        raise SpecError(
            f"--shards, --on: recipe {recipe.name} samples nothing that shards could; expected a "
            "recipe with branches, candidates or rounds, or --nodes N for several machines"
        )
    if options.dry_run:
        before = _prepared(module, job, means)
        if before is not None and not before.ready():
            result.preview = list(before.describe())
        else:
            result.preview = list(describe(job, data_of(module, job), launch.processes))
        if options.together is not None:
            result.preview += ["", *written(options, runs, job.folder).splitlines()]
        return result
    if options.together is not None:
        result.notes += train_together(options, runs, job.folder)
        if not Checkpoint(job.folder).finished:
            raise TrainError(f"{job.folder}: no checkpoint came; {'; '.join(result.notes[-1:])}")
        result.path = job.folder
        return result
    with ExitStack() as held:
        for one in runs:
            lock = held.enter_context(one.reading("training on this run"))
            means.locks.extend([] if lock is None else [lock])
        _fit(module, job, means, result)
    result.path = job.folder
    return result


def data_of(module: ModuleType, job: Job) -> Learnt:
    """Return the trainer's data. Raises TrainError for settings that the trainer does not use, or
    if turns should be weighted and are not."""
    objective(job.recipe.loss)
    learnt = job.learnt(module)
    own = not isinstance(learnt, Weighted) or getattr(module, "OWN_LOSS", False)
    if own and job.recipe.loss != Loss():
        raise TrainError(
            f"recipe {job.recipe.name!r}: found settings of `loss`, which trainer "
            f"{job.recipe.trainer} does not go by; expected a learner of weighted rows, as swift"
        )
    if own and job.recipe.fit.packing:
        raise TrainError(
            f"recipe {job.recipe.name!r}: found fit.packing, and trainer {job.recipe.trainer} pads "
            "its rows by itself; expected false, or a learner of weighted rows, as swift"
        )
    weighed = isinstance(learnt, Weighted) and learnt.by_turn
    reward = job.recipe.weighting.reward
    if reward != "conversation" and not weighed:
        raise TrainError(
            f"recipe {job.recipe.name!r}: weighting.reward: found {reward}, and it weighs no "
            "turns; expected conversation; turns are weighed by refit, swift and trainer weighted"
        )
    return learnt


def _prepared(module: ModuleType, job: Job, means: Means) -> Preparation | None:
    """Return the learner's preparation, or None if it needs none."""
    found: Preparation | None = getattr(module, "prepare", lambda job, means: None)(job, means)
    return found


def _fit(module: ModuleType, job: Job, means: Means, result: TrainResult) -> None:
    """Prepare and train with the checkpoint's folder locked; data that can be checked are checked
    before the folder is made."""
    before = _prepared(module, job, means)
    if (
        before
        and not before.ready()
        and (result.launch.accelerate or {}).get("num_machines", 1) > 1
    ):
        raise TrainError(
            f"recipe {job.recipe.name!r} samples or trains something first, which one machine "
            "does: train it on one, or until it has, then with --nodes"
        )
    learnt: Learnt | None = None if before else data_of(module, job)
    with lock_checkpoint(job, means.launch) as lock:
        means.locks.append(lock)
        result.notes += before.do() if before else []
        learnt = learnt or data_of(module, job)
        selection = learnt.selection
        result.notes += [*selection.unfit(), *selection.flagged.describe(), *ties_of(learnt)]
        start(job, means, learnt)
        seal_checkpoint(job.folder)
        result.told = list(before.told()) if before else []


@contextmanager
def lock_checkpoint(job: Job, launch: Launch) -> Iterator[int]:
    """Lock the checkpoint's folder and yield the lock's descriptor. Raises RunError if another
    training holds it. Machines that share the folder have a lock each, by their rank."""
    rank = launching.rank_of(launch)
    try:
        job.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(job.folder, error) from None
    name = f"{LOCK}-{rank}" if rank else LOCK
    with folder_lock(
        job.folder, "training into this folder", ", or name another with --out", name=name
    ) as lock:
        if Checkpoint(job.folder).finished:
            raise TrainError(f"{job.folder}: another process has just finished this checkpoint")
        yield lock


def trainable(options: TrainOptions, policy: Member | None = None) -> Recipe:
    """Return the recipe of a training after checking, before there is a run, that it could start
    here. Raises SpecError, TrainError, MissingDependency.

    `policy` is the policy of the run to come, if the training starts from its weights.
    """
    recipe_sets, launch_sets = sort_sets(options.specs.sets)
    recipe = recipe_of(options, recipe_sets)
    launching.locate(recipe.trainer or "")
    choose_launch(options, recipe, launch_sets, launching.accelerators(options.calls))
    if policy is not None and not (options.model or recipe.model):
        member_weights(policy, f"train {recipe.name}")
    return recipe


def of_one_run(recipe: Recipe) -> bool:
    """Return True if a recipe learns from a single run only, e.g. if it samples from it first."""
    module = launching.load(launching.locate(recipe.trainer or ""))
    samples = hasattr(module, "prepare") and recipe.pairing.source != "logged"
    return samples or bool(getattr(module, "ONE_RUN", False))


def train_once(options: TrainOptions, folder: Path) -> Path:
    """Train into a folder unless it holds a finished checkpoint; return the folder."""
    if not Checkpoint(folder).finished:
        train(replace(options, out=folder))
    return folder


def sort_sets(pairs: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `--set` pairs as (settings of the recipe, settings of the launch file); the latter are
    those of `launch.KEY`."""
    recipe: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    for key, value in catalog.parse_sets(pairs).items():
        if key.startswith("launch."):
            launch["accelerate." + key.removeprefix("launch.")] = value
        else:
            recipe[key.removeprefix("recipe.")] = value
    return recipe, launch


def recipe_of(options: TrainOptions, sets: dict[str, Any]) -> Recipe:
    """Return the options' recipe. Raises TrainError for a recipe that trains nothing."""
    if "fit.accumulation" in sets and "fit.batch" not in sets:  # the user's own takes precedence
        sets = {**sets, "fit.batch": None}
    recipe = catalog.load(Recipe, "recipes", options.recipe, specs=options.specs.folders, sets=sets)
    if recipe.trainer is None:
        raise TrainError(
            f"recipe {recipe.name!r} trains nothing; evaluate the policy itself: convbench eval"
        )
    return recipe


def resolve(options: TrainOptions, runs: Sequence[Run], sets: dict[str, Any]) -> Recipe:
    """Return the recipe with runs, model and judge filled in; the model is the first run's policy
    unless options or recipe name another."""
    run = runs[0]
    recipe = recipe_of(options, sets)
    model = options.model or recipe.model or policy_weights(run.manifest)
    place = named(model) or model
    check_model(place)
    folder = Path(place).expanduser()
    if model not in OURS:
        model = str(folder.resolve()) if folder.is_dir() else place
    data = recipe.data.model_copy(update={"judge": options.judge or recipe.data.judge})
    return recipe.model_copy(
        update={
            "model": model,
            "run": str(run.path.resolve()),
            "runs": tuple(str(one.path.resolve()) for one in runs[1:]),
            "data": data,
        }
    )


def choose_launch(
    options: TrainOptions, recipe: Recipe, sets: dict[str, Any], gpus: int
) -> tuple[Launch, list[str]]:
    """Return (the launch, notes): the named launch, or the recipe's if this machine has enough
    accelerators, else `none`.

    The launch is checked. Raises TrainError if processes would share an accelerator.
    """
    folders = options.specs.folders
    name = options.launch or recipe.launch
    launch = catalog.load(Launch, "launch", name, specs=folders, sets=sets)
    here, notes = launch.processes, list[str]()
    if launch.accelerate:
        here //= int(launch.accelerate.get("num_machines") or 1)
    asked = options.launch is not None or options.nodes is not None
    fits = f"--launch {name} --set launch.num_processes={gpus}"
    if asked and 0 < gpus < here and not options.dry_run:
        raise TrainError(
            f"launch {name!r} starts {here} processes here and has {gpus} accelerators: several "
            f"would share one; expected {fits}, or more with --devices"
        )
    if not asked and here > max(gpus, 1):
        way = f"here: {fits}" if gpus else f"on the CPU, in {here} processes: --launch {name}"
        notes = [
            f"launch {name!r} asks for {here} accelerators and {gpus} are here: training in one "
            f"process (for {name} {way})"
        ]
        launch = catalog.load(Launch, "launch", "none", specs=folders)
    launching.check(launch, recipe.fit)
    if not options.dry_run:
        launching.installed(launch, recipe)
    return launch, notes


def free_folder(options: TrainOptions, run: Run, recipe: Recipe) -> Path:
    """Return the folder for the checkpoint: one of an unfinished training of the same recipe, which
    resumes, else a new one. Raises TrainError if `--out` holds a checkpoint."""
    if options.out is not None:
        if Checkpoint(options.out).finished:
            raise TrainError(
                f"--out {options.out}: holds a checkpoint already; name another folder"
            )
        return options.out
    for number in itertools.count(1):
        folder = run.checkpoints / (recipe.name if number == 1 else f"{recipe.name}-{number}")
        if not Checkpoint(folder).finished and _same_or_none(Job(recipe, folder)):
            return folder
    raise AssertionError


def _same_or_none(job: Job) -> bool:
    """Return True if no training began in the folder, or one of exactly this recipe."""
    file = job.folder / RECIPE
    begun = any(found for pattern in BEGUN for found in job.folder.glob(pattern))
    if not begun or not file.exists():
        return True
    try:
        there = catalog.check(Recipe, read(file), str(file))
    except SpecError:
        return False
    return there == portable_recipe(job)


def ties_of(learnt: Learnt) -> Iterator[str]:
    """Yield a line on tied tasks, for learners that take one conversation of each task."""
    if isinstance(learnt, Weighted | Pairs) and learnt.ties is not None:
        yield from learnt.ties.describe()


def _thought(weighted: Weighted) -> bool:
    talks = (logged.conversation for logged, _ in weighted.items)
    return any(turn.reasoning is not None for talk in talks for turn in talk.turns)


class Part:
    """The sample of many items that a dry run turns into tokens."""

    def __init__(self, count: int, most: int = TRIED) -> None:
        self.count = count
        self.share = min(1.0, most / count)

    def of(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return the sampled items, evenly spaced, first and last included."""
        size = round(self.count * self.share)
        if size == self.count:
            return tuple(items)
        return tuple(items[(self.count - 1) * n // (size - 1)] for n in range(size))

    def whole(self, found: int) -> int:
        """Return the count among all items that a count in the sample stands for."""
        return round(found / self.share)

    def describe(self, what: str, counts: Mapping[str, int]) -> Iterator[str]:
        """Yield lines with the counts among all items, and a line that they are extrapolated."""
        if self.share < 1:
            yield f"below, {round(self.count * self.share):,} {what} stand for all {self.count:,}"
        about = "about " if self.share < 1 else ""
        for name, count in counts.items():
            yield f"{name}: {about}{self.whole(count)}"


def describe(job: Job, learnt: Learnt, processes: int = 1) -> Iterator[str]:
    """Yield the lines of a dry run: counts, steps, then tokens, mask and weight of three items."""
    yield from learnt.selection.describe(job.recipe.data.metric)
    for reason, count in learnt.skipped.items():
        yield f"left out: {count} {reason}"
    yield from ties_of(learnt)
    mix = zip(job.recipe.data.mix, job.runs, strict=False)
    shares = ", ".join(f"{share:g} x {run.path.name}" for share, run in mix)
    if shares:
        yield f"mixed: {shares}"
    if isinstance(learnt, Pairs):
        part = Part(len(learnt.items))
        some = replace(learnt, items=part.of(learnt.items))
        pairs = rows_of(job, some)
        ids = (one for row in pairs.rows for one in row.fields().values())
        yield from part.describe("pairs", {**pairs.counts, "tokens": sum(map(len, ids))})
        count = part.whole(len(pairs.rows))
        yield Steps(count, "pair", job.recipe.fit, processes, whole=True).describe()
        yield from preview_pairs(pairs.rows[:SHOWN], job.chat)
        return
    if not isinstance(learnt, Weighted):
        yield from learnt.describe()
        return
    yield f"questions whose rewards do not differ: {learnt.flat_tasks:.1%}"
    if job.recipe.loss != Loss():
        yield said_of_loss(job.recipe.loss)
    unit = job.recipe.data.unit
    part = Part(len(learnt.items))
    items = learnt.items
    if part.share < 1:  # the highest weight first; a stable sort
        items = sorted(items, key=lambda item: -item[1])
    weighed = replace(learnt, items=part.of(items))
    rows = rows_of(job, weighed)
    yield from part.describe("conversations, evenly by weight,", rows.counts)
    several = rows.counts["conversations of several rows"]
    if several and unit == "conversation":
        yield (
            f"the chat template is not prefix-stable for {several} of "
            f"{rows.counts['conversations']} conversations (a later prompt does not begin with "
            f"the row before it): {rows.counts['rows']} rows"
        )
    if not job.chat.frame.known and _thought(weighed):
        yield "the chat template has no place for reasoning: <think> tags stand for it"
    yield Steps(part.whole(len(rows.rows)), unit, job.recipe.fit, processes).describe()
    shown = sorted(rows.rows, key=lambda row: -row.weight)
    picked = {0, len(shown) // 2, len(shown) - 1}
    yield from preview([shown[i] for i in sorted(picked)], job.chat)
