"""Train a recipe on judged runs: resolve it, make its rows, start its program, or show a dry run.

train("swift", [run])      select → weigh → tokenise → RUN/checkpoints/swift/rows
                           → trainers/weighted_sft.py RUN/checkpoints/swift → training.json
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from convbench import catalog
from convbench.catalog.read import read_yaml
from convbench.engine.session import Session
from convbench.errors import SpecError, TrainError
from convbench.judges.adaptation.verdict import MARGIN
from convbench.learn.credit import stage_lines, store_credit, sweet_material
from convbench.learn.launch import (
    Context,
    check_installed,
    fit_rows,
    load_module,
    locate_program,
    pick_launch,
    portable,
)
from convbench.learn.memory import Cards
from convbench.learn.rows import (
    Chats,
    Material,
    Row,
    check_rows,
    paired_material,
    preview_rows,
    row_length,
    weighted_material,
)
from convbench.learn.select import select
from convbench.learn.steps import Steps, row_limit
from convbench.learn.sweet import CANDIDATES, CRITIC, trajectory_material
from convbench.models.weights_path import SHIPPED_REFS, check_model, member_weights, weights_of
from convbench.options.shared import CallOptions, SpecOptions
from convbench.options.specs import load_plugins
from convbench.schema import ProtocolSpec
from convbench.schema.recipe import EditFilter, LaunchSpec, Loss, Recipe
from convbench.store.checkpoint import RECIPE, TRAINING, Checkpoint
from convbench.store.jsonl import disk_error
from convbench.store.locks import folder_lock
from convbench.store.run import Run
from convbench.tasks.draw import count_splits, format_counts

FILTERS: dict[EditFilter, dict[str, Any]] = {
    "best-of-k": {"data.metric": "reward", "data.least": {"*": {"trained": 1}}},
    "improves": {
        "data.metric": "net",
        "data.least": {"*": {"trained": 1}},
        "weighting.keep": "all",
        "weighting.threshold": MARGIN,
    },
    "right": {"data.metric": "accuracy", "weighting.keep": "all", "weighting.threshold": 1.0},
}
"""Settings by filter of self-edits, unless the user set them: each context's best edit, all that
improve (SEAL, equation 2) by more than the margin of the judge's `improves`, or all after which
their task is solved. Edits that could not be trained on are left out."""
TRACES = ("checkpoint-*", f"{CRITIC}/checkpoint-*", f"{CRITIC}/{TRAINING}", CANDIDATES)
"""Files in a checkpoint's folder that show that a training, or a stage before it, began."""
PREVIEWED = 200
"""Conversations or pairs that a dry run turns into tokens."""
PROGRAMS = {"sweet": "preference"}
"""The program of a trainer whose name is another."""
WEIGHTED, PAIRED = ("weighted_sft", "distil"), ("preference", "sweet")


@dataclass
class TrainResult:
    """Result of `train`, or of its dry run."""

    recipe: Recipe
    launch: LaunchSpec | None = None
    path: Path | None = None
    """The checkpoint; None on a dry run."""
    imported: bool = False
    """Whether it trained on imported conversations, which have no protocol to evaluate in."""
    notes: list[str] = field(default_factory=list)
    preview: list[str] = field(default_factory=list)
    """Lines that a dry run shows."""
    result_lines: list[tuple[str, str]] = field(default_factory=list)
    """(label, line) pairs on the result."""


def train(
    name: str,
    runs: Sequence[Run],
    *,
    model: str | None = None,
    judge: str | None = None,
    out: Path | None = None,
    launch: str | None = None,
    dry_run: bool = False,
    cards: Cards | None = None,
    calls: CallOptions | None = None,
    session: Session | None = None,
    specs: SpecOptions | None = None,
    in_process: bool = False,
) -> TrainResult:
    """Train a recipe on runs, several as one log, and return the result.

    A dry run writes nothing: `preview` has its lines, planned for `cards` or this machine. Raise
    TrainError, RunError, SpecError, before torch is loaded for everything that can be checked; a
    failed program raises TrainError with its reason.
    """
    calls, specs = calls or CallOptions(), specs or SpecOptions()
    load_plugins(specs)
    recipe_sets, launch_sets = split_sets(specs.sets)
    recipe = resolve(load_recipe(name, specs, recipe_sets), runs, model, judge)
    folder = checkpoint_folder(runs[0], recipe, out)
    context = Context(
        weights_of(recipe.model or "") or recipe.model or "",
        row_limit(recipe),
        calls,
        specs,
        launch,
        launch_sets,
        cards,
        in_process=in_process,
        session=session or Session(),
    )
    imported = runs[0].manifest.kind == "import"
    result = TrainResult(recipe, imported=imported, notes=context.notes)
    counts = count_splits(question.split for question in runs[0].questions.values())
    if not counts["test"] and not imported:
        found = format_counts(counts)
        context.notes.append(f"no question of split test ({found}): nothing to evaluate on")
    if dry_run:
        result.preview = list(_preview(recipe, runs, context, result))
        return result
    sweet = recipe.trainer == "sweet"
    material = None if sweet else make_material(recipe, runs, context)
    with ExitStack() as held:
        for run in runs:
            lock = held.enter_context(run.read_lock("training on this run"))
            context.locks += [] if lock is None else [lock]
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(folder, error) from None
        hint = ", or name another with --out"
        lock = held.enter_context(folder_lock(folder, "training into this folder", hint))
        context.locks.append(lock)
        material = material or sweet_material(folder, recipe, runs, context)
        context.notes += material.selection.notes(recipe.data)
        context.notes += [material.ties.line()] if material.ties else []
        program = PROGRAMS.get(recipe.trainer or "", recipe.trainer)
        result.launch = fit_rows(folder, recipe, material, context, program)
    if sweet:
        turns = store_credit(folder, runs[0])
        pairs = Checkpoint(folder / CRITIC).training["held_out"]
        right = f"right on {pairs['accuracy']:.0%}" if pairs["pairs"] else "measured on none"
        line = f"{right} of {pairs['pairs']} pairs of held-out tasks (args.held_out)"
        result.result_lines = [("critic", line), ("credit", f"{turns} turns")]
    result.path = folder
    return result


def load_recipe(name: str, specs: SpecOptions, sets: dict[str, Any]) -> Recipe:
    """Return a recipe by name or file with these settings; of `fit.arguments` of a pulled run's
    recipe only the numbers are taken. Raise TrainError for one that trains nothing, SpecError for
    an unknown or invalid one, MissingDependency for a missing package."""
    if "fit.accumulation" in sets and "fit.batch" not in sets:  # the user's own takes precedence
        sets = {**sets, "fit.batch": None}
    recipe = catalog.load_spec(Recipe, "recipes", name, specs=specs.folders, sets=sets)
    if recipe.filter is not None:
        sets = {**FILTERS[recipe.filter], **sets}
        recipe = catalog.load_spec(Recipe, "recipes", name, specs=specs.folders, sets=sets)
    if _is_pulled(name):
        numbers = {k: v for k, v in recipe.fit.arguments.items() if type(v) in (int, float)}
        fit = recipe.fit.model_copy(update={"arguments": numbers})
        recipe = recipe.model_copy(update={"fit": fit})
    if recipe.trainer is None:
        raise TrainError(
            f"recipe {recipe.name!r} trains nothing; evaluate the policy itself: convbench eval"
        )
    locate_program(PROGRAMS.get(recipe.trainer, recipe.trainer))
    _check_settings(recipe)
    check_installed(recipe)
    return recipe


def split_sets(pairs: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `--set` pairs as (settings of the recipe, settings of the launch), by dotted key.

    `launch.KEY` becomes `accelerate.KEY` of the latter; the prefix `recipe.` is removed."""
    recipe: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    for key, value in catalog.parse_sets(pairs).items():
        if key.startswith("launch."):
            launch["accelerate." + key.removeprefix("launch.")] = value
        else:
            recipe[key.removeprefix("recipe.")] = value
    return recipe, launch


def _is_pulled(name: str) -> bool:
    """Return True if a recipe is a file in a run that somebody else published."""
    folders = Path(name).expanduser().resolve().parents if name.endswith((".yaml", ".yml")) else ()
    of_run = next((folder for folder in folders if (folder / "run.json").is_file()), None)
    return of_run is not None and Run.open(of_run).manifest.pulled_from is not None


def resolve(recipe: Recipe, runs: Sequence[Run], model: str | None, judge: str | None) -> Recipe:
    """Return the recipe with runs, model, judge and teacher filled in; runs and local models as
    absolute paths.

    The model is the named one, else the recipe's, else the first run's policy. Raise ConvbenchError
    if the model's weights are not available, or cannot get the adapter.
    """
    run = runs[0]
    model = model or recipe.model or member_weights(run.manifest.policy_member)
    location = weights_of(model) or model
    check_model(location)
    place = Path(location).expanduser()
    if model not in SHIPPED_REFS:
        model = str(place.resolve()) if place.is_dir() else location
    values: dict[str, Any] = {
        "model": model,
        "run": str(run.path.resolve()),
        "runs": tuple(str(other.path.resolve()) for other in runs[1:]),
        "data": recipe.data.model_copy(update={"judge": judge or recipe.data.judge}),
    }
    if recipe.distil is not None:
        teacher = _find_teacher(run, recipe.distil.teacher)
        values["distil"] = recipe.distil.model_copy(update={"teacher": teacher})
    if recipe.loss.name.endswith(".py"):
        own = str(Path(recipe.loss.name).expanduser().resolve())
        values["loss"] = recipe.loss.model_copy(update={"name": own})
    if recipe.lora is not None:
        _check_adapter(recipe, location)
    return recipe.model_copy(update=values)


def _find_teacher(run: Run, named: str | None) -> str:
    """Return the checkpoint to distil: the named one, or the run's newest of recipe `star-gate`."""
    if named is not None:
        check_model(named)
        return str(Path(named).expanduser().resolve())
    known = run.checkpoints_folder.glob("star-gate*")
    folders = [f for f in known if Checkpoint(f).training.get("recipe") == "star-gate"]
    if not folders:
        raise TrainError(
            f"{run.path}: found no finished star-gate checkpoint to distil; run first: convbench "
            "train star-gate, or name one with --set distil.teacher=PATH"
        )
    newest = max(folders, key=lambda folder: (folder / TRAINING).stat().st_mtime)
    return str(newest.resolve())


def checkpoint_folder(run: Run, recipe: Recipe, out: Path | None) -> Path:
    """Return the folder for the checkpoint, which is not made: `out`, else the first of RECIPE,
    RECIPE-2 … in the run's checkpoints in which nothing began, or a training of exactly this
    recipe, which resumes. Raise TrainError if `out` holds another training or a finished one."""
    if out is None:
        numbers = (recipe.name if n == 1 else f"{recipe.name}-{n}" for n in itertools.count(1))
        folders = (run.checkpoints_folder / name for name in numbers)
        return next(f for f in folders if not Checkpoint(f).is_finished and _is_free(f, recipe))
    if Checkpoint(out).is_finished:
        raise TrainError(f"--out {out}: holds a checkpoint already; name another folder")
    if not _is_free(out, recipe):
        raise TrainError(
            f"--out {out}: holds the beginning of another training than {recipe.name} with these "
            "settings; name another folder, or remove it"
        )
    return out


def make_material(recipe: Recipe, runs: Sequence[Run], context: Context) -> Material:
    """Return what a recipe learns from. Raise TrainError if nothing is left."""
    chats = Chats(context.model_path, recipe.data.reasoning)
    arguments = recipe, runs, chats, context.limit
    if recipe.trainer in WEIGHTED:
        return weighted_material(*arguments)
    if recipe.trainer == "critic":
        return trajectory_material(*arguments)
    if recipe.trainer == "preference":
        return paired_material(*arguments, direct_protocol(recipe, context.specs))
    rows = getattr(load_module(locate_program(str(recipe.trainer))), "rows", None)
    if rows is None:
        return weighted_material(*arguments)
    own: list[Row] = list(rows(recipe, runs))
    return Material(select(runs, recipe.data), "row", own, lambda some, counts: iter(some))


def direct_protocol(recipe: Recipe, specs: SpecOptions) -> ProtocolSpec | None:
    """Return the protocol under whose first prompt a recipe pairs final replies, if it has one."""
    name = recipe.pairing.protocol
    return catalog.load_spec(ProtocolSpec, "protocols", name, specs=specs.folders) if name else None


def _preview(
    recipe: Recipe, runs: Sequence[Run], context: Context, result: TrainResult
) -> Iterator[str]:
    """Yield the lines of a dry run: counts, steps, launch, memory, and three rows token by
    token."""
    if recipe.trainer == "sweet":
        yield from stage_lines(recipe, runs, context)
        yield from _launch_lines(recipe, context, result, (context.limit or 2048,) * 2)
        return
    material = make_material(recipe, runs, context)
    selection = material.selection
    yield (
        f"{len(selection.logged)} conversations about {len(selection.by_task())} questions, judge "
        f"{selection.judge}, metric {recipe.data.metric}"
    )
    for reason, count in {**selection.left_out, **material.left_out}.items():
        yield f"omitted: {count} {reason}"
    yield from selection.notes(recipe.data)
    if material.ties is not None:
        yield material.ties.line()
    if material.flat_tasks is not None:
        yield f"questions whose rewards do not differ: {material.flat_tasks:.1%}"
    tallies: Counter[str] = Counter()
    rows = list(material.tokenise(material.items[:PREVIEWED], tallies))
    check_rows(len(rows), tallies, context.limit)
    total = len(material.items)
    if total > PREVIEWED:
        yield f"the first {PREVIEWED} of {total:,} are counted; steps are extrapolated from these"
    yield from (f"{name}: {count}" for name, count in (+tallies).items())
    longest, most = zip(*map(row_length, rows), strict=True)
    launched = list(_launch_lines(recipe, context, result, (max(longest), max(most))))
    assert result.launch is not None
    learnt = sum(not row.get("held", False) for row in rows)
    number = round(learnt * total / min(total, PREVIEWED))
    yield Steps(number, material.unit, recipe.fit, result.launch.process_count).line()
    yield from launched
    yield from preview_rows(rows, Chats(context.model_path, "loss").tokenizer)


def _launch_lines(
    recipe: Recipe, context: Context, result: TrainResult, longest: tuple[int, int]
) -> list[str]:
    result.launch, memory = pick_launch(recipe, context, longest)
    unknown = "a mixture of experts, quantised weights, or no config.json"
    told = memory.line() if memory else f"memory: the model's size cannot be told ({unknown})"
    return [f"launch: {result.launch.name}, {result.launch.process_count} process(es)", told]


def _is_free(folder: Path, recipe: Recipe) -> bool:
    """Return True if no training began in a folder, or one of exactly this recipe."""
    file = folder / RECIPE
    if not file.exists() or not any(trace for name in TRACES for trace in folder.glob(name)):
        return True
    try:
        stored = catalog.check_spec(Recipe, read_yaml(file), str(file))
    except SpecError:
        return False
    return stored == portable(recipe, folder)


def _check_settings(recipe: Recipe) -> None:
    """Raise SpecError for settings that the recipe's trainer does not use."""
    trainer = recipe.trainer
    if recipe.loss != Loss() and trainer in ("distil", "critic", *PAIRED):
        raise SpecError(
            f"recipe {recipe.name!r}: found settings of `loss`, which trainer {trainer} does not "
            "use; expected a learner of weighted rows, such as swift"
        )
    quantized = recipe.lora is not None and recipe.lora.quantize != "none"
    if quantized and trainer in ("critic", "sweet", "distil"):
        raise SpecError(f"recipe {recipe.name!r}: lora.quantize: trainer {trainer} cannot use it")
    if recipe.fit.packing and trainer in ("critic", *PAIRED):
        raise SpecError(f"recipe {recipe.name!r}: fit.packing: trainer {trainer} cannot use it")
    if trainer == "distil" and recipe.distil is None:
        raise SpecError(f"recipe {recipe.name!r}: distil: missing; expected its settings")
    own = Path(recipe.loss.name).expanduser()
    if own.suffix == ".py" and not own.is_file():
        raise SpecError(f"loss.name {recipe.loss.name!r}: found no such file")


def _check_adapter(recipe: Recipe, model: str) -> None:
    """Raise TrainError for an adapter on a layer that cannot have one: the head, which TRL scores
    with directly, and embeddings that share the head's weights, into which it cannot be merged."""
    from transformers import AutoConfig

    assert recipe.lora is not None
    names = {name.rpartition(".")[2] for name in recipe.lora.target_modules}
    if "lm_head" in names:
        raise TrainError("lora.target_modules: found lm_head, which no adapter can train")
    if "embed_tokens" in names:
        config = AutoConfig.from_pretrained(model)
        if getattr(config.get_text_config(), "tie_word_embeddings", False):
            raise TrainError(
                "lora.target_modules: found embed_tokens, whose weights lm_head shares in this "
                "model (tie_word_embeddings); expected other layers, or a full training"
            )
