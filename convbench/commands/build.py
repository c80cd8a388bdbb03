"""`build`: from a task and a cast to a run full of conversations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from convbench.build.run import Built, identical_samples
from convbench.build.run import build as build_run
from convbench.commands.calls import CallOptions, calling, open_cast
from convbench.commands.cast import make_cast
from convbench.commands.manifest import Shape, make_manifest, refuse_changes
from convbench.commands.preview import Preview, preview
from convbench.commands.specs import (
    SpecOptions,
    load_plugins,
    load_protocol,
    load_task,
    sort_sets,
)
from convbench.errors import RunError, SpecError
from convbench.schema import Example, RunManifest, TaskSpec
from convbench.store import Run, set_latest
from convbench.tasks.load import Loaded, load_examples


@dataclass(frozen=True)
class BuildOptions:
    """What a user asks of `build`; None leaves the default."""

    task: str | None = None
    protocol: str | None = None
    tasks: int | Literal["all"] | None = None
    shape: Shape = Shape()
    model: str | None = None
    teacher: str | None = None
    run: Path | None = None
    dry_run: bool = False
    specs: SpecOptions = SpecOptions()
    calls: CallOptions = CallOptions()


@dataclass
class BuildResult:
    """What `build` did, or would do."""

    path: Path | None
    manifest: RunManifest
    resumed: bool = False
    loaded: Loaded | None = None
    built: Built | None = None
    preview: Preview | None = None
    warnings: list[str] = field(default_factory=list)


def build(options: BuildOptions) -> BuildResult:
    """Make a run and have its conversations, or resume the run that is there.

    Raises ConvbenchError subclasses; nothing is written before the questions are loaded and the
    first prompts rendered.
    """
    load_plugins(options.specs)
    existing = _existing(options.run)
    if existing is None:
        manifest, loaded = _new(options)
        examples: Mapping[str, Example] = {e.example_id: e for e in loaded.examples}
    else:
        manifest, loaded = _resume(existing, options), None
        examples = existing.examples
    result = BuildResult(options.run, manifest, existing is not None, loaded)
    first = preview(manifest, list(examples.values()))
    if options.dry_run:
        result.preview = first
        return result
    if existing is None:
        path = options.run or _new_path(manifest)
        run = Run.create(path, manifest, list(examples.values()))
    else:
        run = existing
    result.path = run.path
    if manifest.kind == "build":
        set_latest(run.path)
    result.built = have(run, options.calls)
    same = identical_samples(run)
    if same:
        result.warnings.append(
            f"{same} questions have samples that are identical word for word; SWiFt gets no "
            "signal from them (greedy decoding, a cache in between, or a seed that is ignored?)"
        )
    return result


def _existing(path: Path | None) -> Run | None:
    if path is None or not path.exists():
        return None
    if path.is_dir() and not any(path.iterdir()):
        return None
    if (path / "run.json").exists():
        return Run.open(path.resolve())
    if path.is_dir() and all(_unborn(item.name) for item in path.iterdir()):
        return None
    raise RunError(f"--run {path}: there is something that is no run; expected a new directory")


def _unborn(name: str) -> bool:
    """Return whether a build that was killed before it wrote run.json leaves such a file."""
    return name in ("examples.jsonl", ".lock") or (name[0] == "." and name.endswith(".tmp"))


def _new(options: BuildOptions) -> tuple[RunManifest, Loaded]:
    if options.task is None:
        raise SpecError(
            "build needs a task (see: convbench list tasks), or --run DIR of a run to resume"
        )
    sets = sort_sets(options.specs.sets, ("task", "protocol"))
    task = _sized(load_task(options.task, options.specs, sets), options.tasks)
    protocol = load_protocol(options.protocol or task.protocol, options.specs, sets)
    cast = make_cast(
        task,
        protocol,
        model=options.model,
        teacher=options.teacher,
        max_tokens=options.shape.max_tokens,
        specs=options.specs,
        calls=options.calls,
    )
    manifest = make_manifest(task, protocol, options.shape, cast)
    loaded = load_examples(task, manifest.seed)
    wanted = [e for e in loaded.examples if manifest.split in ("all", e.split)]
    if not wanted:
        raise SpecError(f"--split {manifest.split}: task {task.name} drew no question for it")
    return manifest.model_copy(
        update={
            "source_revision": loaded.revision,
            "extra": {"rows": loaded.rows, "rejected": loaded.rejected},
        }
    ), loaded


def _sized(task: TaskSpec, count: int | Literal["all"] | None) -> TaskSpec:
    if count is None:
        return task
    return task.model_copy(update={"sample": task.sample.model_copy(update={"count": count})})


def _resume(run: Run, options: BuildOptions) -> RunManifest:
    """Return the run's manifest, refusing options that would change it."""
    old = run.manifest
    if old.kind == "import":
        raise RunError(f"{run.path}: holds imported conversations; there is nothing to build")
    shape = options.shape
    if options.task is None and options.protocol is None and options.model is None:
        task, protocol = old.task, old.protocol
        cast = old.cast
    else:
        sets = sort_sets(options.specs.sets, ("task", "protocol"))
        task = load_task(options.task, options.specs, sets) if options.task else old.task
        task = _sized(task, options.tasks or old.task.sample.count)
        name = options.protocol or old.protocol.name
        protocol = load_protocol(name, options.specs, sets) if options.task else old.protocol
        policy = old.cast[old.protocol.policy]
        cast = make_cast(
            task,
            protocol,
            model=options.model or policy.model,
            teacher=options.teacher,
            max_tokens=shape.max_tokens or policy.sampling.max_tokens,
            specs=options.specs,
            calls=options.calls,
        )
    new = make_manifest(task, protocol, _filled(shape, old), cast)
    refuse_changes(old, new)
    return old


def _filled(shape: Shape, old: RunManifest) -> Shape:
    """Take from the run what the user did not say again."""
    return Shape(
        mode=shape.mode or old.mode,
        turns=shape.turns or old.turns,
        samples=shape.samples or old.samples,
        temperatures=shape.temperatures or old.temperatures,
        seed=old.seed if shape.seed is None else shape.seed,
        split=shape.split or old.split,
    )


def _new_path(manifest: RunManifest) -> Path:
    stamp = "-".join(manifest.id.split("-")[:2])
    name = f"{manifest.task.name}-{manifest.protocol.name}-{manifest.mode}-{stamp}"
    path = Path("runs") / name
    return path if not path.exists() else Path("runs") / f"{name}-{manifest.id[-4:]}"


def have(run: Run, options: CallOptions) -> Built:
    """Have the conversations that the run lacks, under its lock."""
    from convbench.engine.jobs import run as run_loop

    async def go() -> Built:
        async with (
            calling(run, options, label="build") as caller,
            open_cast(run, options) as cast,
        ):
            return await build_run(run, cast, caller, concurrency=options.concurrency)

    with run.lock():
        return run_loop(go)
