"""Build a run: from a task and a cast to its conversations. Missing conversations are played and
appended; existing ones are not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from convbench import prompts
from convbench.catalog import find_function
from convbench.engine.caller import Caller
from convbench.engine.jobs import Summary, run_in_loop
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.engine.session import Session
from convbench.errors import ConvbenchError, FatalModelError, RunError, SpecError
from convbench.models.model import Model, no_batches
from convbench.models.open import policy_or_default
from convbench.models.tools import ToolsModel
from convbench.options.build import BuildOptions
from convbench.options.shared import CallOptions
from convbench.options.specs import load_plugins, load_protocol, load_task, sort_sets, with_count
from convbench.rollout.calls import (
    SCRIPT,
    check_cast,
    max_calls,
    max_conversations,
    open_caller,
    open_cast,
)
from convbench.rollout.manifest import (
    make_cast,
    make_manifest,
    refuse_unsent_temperatures,
    resume_manifest,
)
from convbench.rollout.plan import Rollout, plan_samples
from convbench.rollout.play import failed_conversation, play_conversation
from convbench.rollout.preview import Preview, preview_build
from convbench.rollout.tool_turn import open_tools, tools_of, with_server_tools
from convbench.schema import Conversation, Example, RunManifest, TaskSpec
from convbench.schema.task import Split
from convbench.store import Run, refuse_latest, set_latest
from convbench.store.keys import NameSet
from convbench.store.merge import SHARD, parse_shard, shard_of
from convbench.tasks.draw import count_splits, refuse_untested, single_group_warning
from convbench.tasks.load import LoadResult, load_examples


@dataclass
class BuildSummary:
    """What a build did."""

    jobs: Summary = Summary(0, 0)
    """How the jobs ended."""
    already_there: int = 0
    """Conversations that the run already had."""
    failures: Counter[str] = field(default_factory=Counter)
    """Failed conversations by message."""
    flags: Counter[str] = field(default_factory=Counter)
    """Findings of the fidelity checks in this build, by flag."""
    cut: int = 0
    """Policy turns cut by max_tokens."""
    turns: int = 0
    """Policy turns."""

    @property
    def complete(self) -> int:
        """Return the number of complete conversations of the run: those it had before and those of
        this build."""
        return self.already_there + self.jobs.done

    @property
    def failed(self) -> int:
        """Return the number of conversations of this build that ended in a recorded failure."""
        return self.jobs.failed


JobPlanner = Callable[[Run], Iterable[Rollout]]
"""Function that returns a run's missing conversations; called under the run's lock."""


def missing_jobs(run: Run) -> Iterable[Rollout]:
    """Return an iterator of the conversations that a run lacks, as jobs; failed ones are lacking
    too.

    They are samples of each question of its split.
    """
    return plan_samples(run.manifest, run.examples.values(), run.attempts())


class BuildJobs(RecordedJobs[Rollout, Conversation]):
    """The jobs that play a run's missing conversations."""

    def __init__(
        self, run: Run, cast: Mapping[str, Model], caller: Caller, planned: JobPlanner
    ) -> None:
        self.file = run.conversations_file
        self.built = BuildSummary(already_there=run.attempts().success_count)
        self.tools: Mapping[str, ToolsModel] | None = None
        """The run's tools, once they are open."""
        self._run, self._cast, self._caller, self._planned = run, cast, caller, planned
        downloaded = run.manifest.pulled_from is not None
        self._checks = [
            find_function(c.function, downloaded=downloaded) for c in run.manifest.protocol.checks
        ]
        tools_of(run.manifest)  # a missing function stops the build before any call
        self._keys = NameSet(job.key for job in planned(run))

    def jobs(self) -> Iterable[Rollout]:
        """Return the missing conversations, planned anew at each call; an empty tuple if none were
        missing when this object was made."""
        return self._planned(self._run) if self._keys else ()

    def __len__(self) -> int:
        return len(self._keys)

    async def result(self, job: Rollout) -> Conversation:
        """Return the played conversation, with the flags of the protocol's checks, each once.

        A conversation that a model gave up on is returned with its `failure` and is not checked.
        Errors that stop the run pass through.
        """
        run, manifest = self._run, self._run.manifest
        example = run.examples[job.example_id]
        conversation = await play_conversation(
            manifest, example, job, self._cast, self._caller, self.tools
        )
        if conversation.failure is not None:
            return conversation
        flags = [
            flag
            for check in self._checks
            for flag in check(conversation, example, manifest.protocol)
        ]
        return conversation.model_copy(update={"flags": tuple(dict.fromkeys(flags))})

    def failed_result(self, job: Rollout, error: Exception) -> Conversation:
        """Return the record of a failed attempt, with `failure` and without turns."""
        return failed_conversation(job, self._run.manifest, error)

    def owns(self, key: str) -> bool:
        """Return whether a call belongs to one of these conversations.

        It does if its key up to the last `@` is one of theirs. False for a key without `@`.
        """
        return key.rpartition("@")[0] in self._keys

    def count(self, job: Rollout, conversation: Conversation) -> None:
        """Add a conversation to `self.built`: its flags, its failure by message, its policy turns,
        and those of them that were cut by `max_tokens`."""
        built, policy = self.built, self._run.manifest.protocol.policy
        built.flags.update(conversation.flags)
        if conversation.failure is not None:
            built.failures[conversation.failure.message] += 1
        for turn in conversation.turns:
            if turn.speaker == policy:
                built.turns += 1
                built.cut += turn.finish_reason == "length"


async def build_run(
    run: Run,
    cast: Mapping[str, Model],
    caller: Caller,
    *,
    concurrency: int,
    planned: JobPlanner = missing_jobs,
) -> BuildSummary:
    """Play the run's missing conversations, at most `concurrency` at once, and return what was
    done.

    Each one is appended to the run's file when it ends. An interrupt, or an error that stops the
    run, is in the summary's `jobs` and is not raised. `planned` returns the missing conversations.
    The caller holds the run's lock.
    """
    work = BuildJobs(run, cast, caller, planned)
    async with open_tools(run.manifest, start=len(work) > 0) as work.tools:
        work.built.jobs = await run_recorded(work, caller, concurrency)
    return work.built


def identical_samples(run: Run) -> int:
    """Return the number of questions with two or more samples whose turns all have the same
    contents.

    Turns of every speaker are compared. Failed conversations are left out.
    """
    said: dict[str, list[int]] = {}
    for conversation in run.conversations():
        if conversation.failure is None:
            words = hash(str([turn.content for turn in conversation.turns]))
            said.setdefault(conversation.example_id, []).append(words)
    return sum(len(each) > 1 and len(set(each)) == 1 for each in said.values())


def build_missing(
    run: Run,
    options: CallOptions,
    session: Session,
    label: str = "build",
    planned: JobPlanner = missing_jobs,
) -> BuildSummary:
    """Play the run's missing conversations under its lock and return what was done.

    `label` is shown with the progress; `planned` returns the missing conversations. An interrupt,
    or an error that stops the run, is in the summary's `jobs` and is not raised. Raise RunError for
    a run that is locked, and the errors of opening its models.
    """
    with run.lock():
        return run_in_loop(lambda: build_missing_in_loop(run, options, session, label, planned))


async def build_missing_in_loop(
    run: Run,
    options: CallOptions,
    session: Session,
    label: str = "build",
    planned: JobPlanner = missing_jobs,
) -> BuildSummary:
    """Do what `build_missing` does, in a running event loop and without taking the lock, which the
    caller holds."""
    async with open_cast(run, options, session) as cast:
        many = max_calls(options, cast.values())
        async with open_caller(run, options, session, label, many, cast.values()) as caller:
            jobs = max_conversations(many, cast.values())
            return await build_run(run, cast, caller, concurrency=jobs, planned=planned)


ExampleLoader = Callable[[TaskSpec, int], LoadResult]
"""Function from a task and a seed to the task's questions."""


@dataclass
class BuildResult:
    """What a build did, or would do."""

    path: Path | None
    manifest: RunManifest
    resumed: bool = False
    loaded: LoadResult | None = None
    built: BuildSummary | None = None
    preview: Preview | None = None
    problem: ConvbenchError | None = None
    """Why the run would fail after this dry run, or None if it would not."""
    splits: dict[Split, int] = field(default_factory=dict)
    """Number of questions of each split, built or not."""
    warnings: list[str] = field(default_factory=list)


def build_or_resume(
    options: BuildOptions, session: Session | None = None, load: ExampleLoader = load_examples
) -> BuildResult:
    """Create a run and play its conversations, or resume an existing run, and return what was done.

    A dry run writes nothing, calls no model and sets `preview` and `problem` in place of `built`.
    `load` reads the questions. With `options.shard` a new run has only the questions of that shard.
    Raise a subclass of ConvbenchError if the options, questions or models are wrong, or RunError if
    the folder is not a run; nothing is written before the questions are loaded and the first
    prompts are rendered.
    """
    load_plugins(options.specs)
    existing = _existing_run(options.run)
    if existing is None:
        manifest, loaded = new_run_manifest(options, load)
        examples: Iterable[Example] = loaded.examples
    else:
        manifest, loaded = resume_manifest(existing, options), None
        if options.shard not in (None, manifest.extra.get(SHARD)):
            raise RunError(
                f"--shard {options.shard}: {existing.path} has part "
                f"{manifest.extra.get(SHARD, 'all')}; expected the same, or a new --run"
            )
        examples = existing.examples.values()
    result = BuildResult(options.run, manifest, existing is not None, loaded)
    result.splits = count_splits(e.split for e in examples)
    if existing is None and (line := single_group_warning(examples)):
        result.warnings.append(line)
    if options.tested:
        refuse_untested(manifest.task.name, result.splits)
    # A resumed run's questions are read as needed: one shows whether its prompts render.
    looked_at = None if existing is None or options.dry_run else 1
    in_split = (e for e in examples if manifest.split in ("all", e.split))
    some = islice(in_split, looked_at)
    first = preview_build(manifest, some, options.specs.folders, batch=options.calls.batch)
    session = (session or Session()).naming(*_user_models(options, manifest))
    run = existing or Run(options.run or _new_path(manifest), manifest)
    if options.dry_run:
        result.problem = _dry_run_problem(options, run, session)
        unnamed = result.problem is not None and options.model is None and existing is None
        if unnamed:
            unpriced = first.estimate.model_copy(update={"usd": None})
            first = replace(first, estimate=unpriced, unpriced=())
        result.preview = first
        return result
    refuse_latest(run.path)
    _check_can_run(run, options.calls, session)
    if existing is None:
        run = Run.create(run.path, manifest, examples)
    result.path = run.path
    result.built = build_missing(run, options.calls, session)
    if manifest.kind == "build":
        set_latest(run)
    same = identical_samples(run) if result.built.jobs.done else 0
    if same:
        result.warnings.append(
            f"{same} question{' has' if same == 1 else 's have'} samples that are identical word "
            "for word, which give SWiFt no signal (greedy decoding, a cache, or an ignored seed?)"
        )
    return result


def _check_can_run(run: Run, calls: CallOptions, session: Session) -> None:
    """Raise an error if the cast cannot be called, or not in batches although `--batch` is
    given."""
    if not check_cast(run, calls, session) and calls.batch:
        models = (member.model for member in run.manifest.cast.values() if member.model != SCRIPT)
        raise FatalModelError(no_batches(*models))


def _dry_run_problem(options: BuildOptions, run: Run, session: Session) -> ConvbenchError | None:
    """Return the error that would stop the run after a dry run, or None if nothing would."""
    try:
        if options.task is not None:
            _policy_model(options)
        _check_can_run(run, options.calls, session)
    except ConvbenchError as error:
        return error
    return None


def _user_models(options: BuildOptions, manifest: RunManifest) -> list[str]:
    """Return the references of the cast's models that the user named."""
    policy = manifest.protocol.policy
    return [
        member.model
        for name, member in manifest.cast.items()
        if (options.model if name == policy else options.teacher) is not None
    ]


def _existing_run(path: Path | None) -> Run | None:
    if path is None or not path.exists():
        return None
    if path.is_dir() and not any(path.iterdir()):
        return None
    if (path / "run.json").exists():
        return Run.open(path.resolve())
    if path.is_dir() and all(_is_leftover(item.name) for item in path.iterdir()):
        return None
    raise RunError(f"--run {path}: exists and is not a run; expected a new directory")


def _is_leftover(name: str) -> bool:
    """Return whether this is a file that a build leaves if it is killed before it writes
    run.json."""
    began = name in (".lock", "examples.jsonl")
    return began or (name[0] == "." and name.endswith(".tmp"))


def new_run_manifest(
    options: BuildOptions, load: ExampleLoader = load_examples
) -> tuple[RunManifest, LoadResult]:
    """Return (the manifest of a new run, its questions with the number of rows read); write
    nothing.

    `load` reads the questions. Tool servers of the protocol are started to list their tools, and
    stopped. Raise SpecError for a wrong spec, a missing task or a split without a question,
    UsageError for temperatures that do not match the samples, DataError or HubError for the rows,
    FatalModelError for an unknown model.
    """
    if options.task is None:
        raise SpecError(
            "build needs a task (see: convbench list tasks), or --run DIR of a run to resume"
        )
    sets = sort_sets(options.specs.sets, ("task", "protocol"))
    task = with_count(load_task(options.task, options.specs, sets), options.tasks)
    protocol = load_protocol(options.protocol or task.protocol, options.specs, sets)
    cast = make_cast(
        task,
        protocol,
        model=options.model if options.dry_run else _policy_model(options),
        teacher=options.teacher,
        max_tokens=options.shape.max_tokens,
        effort=options.shape.reasoning_effort,
        top_p=options.shape.top_p,
        specs=options.specs,
        calls=options.calls,
    )
    manifest = make_manifest(task, with_server_tools(protocol), options.shape, cast)
    refuse_unsent_temperatures(manifest)
    loaded = load(task, manifest.seed)
    extra: dict[str, Any] = {"rows": loaded.rows, "rejected": loaded.rejected}
    if options.shard is not None:
        loaded = _part_of(loaded, options.shard)
        extra[SHARD] = options.shard
    if not any(manifest.split in ("all", e.split) for e in loaded.examples):
        raise SpecError(
            f"--split {manifest.split}: no question of task {task.name} is in this split"
        )
    prompts.refuse_absent_choices(task, manifest.protocol, manifest.mode, loaded.examples)
    return manifest.model_copy(
        update={
            "source_revision": loaded.revision,
            "extra": extra,
        }
    ), loaded


def _part_of(loaded: LoadResult, shard: str) -> LoadResult:
    """Return the questions whose group belongs to this part. Raise SpecError if there are none."""
    index, count = parse_shard(shard)
    part = [each for each in loaded.examples if shard_of(each.group_id, count) == index]
    if not part:
        raise SpecError(
            f"--shard {shard}: none of the {len(loaded.examples)} questions is in this part; "
            "expected fewer parts"
        )
    return replace(loaded, examples=part)


def _policy_model(options: BuildOptions) -> str:
    """Return the policy that the user named, or the default policy if it can run here."""
    return policy_or_default(
        options.model,
        api_base=options.calls.api_base,
        specs=options.specs.folders,
    )


def _new_path(manifest: RunManifest) -> Path:
    stamp = "-".join(manifest.id.split("-")[:2])
    name = f"{manifest.task.name}-{manifest.protocol.name}-{manifest.mode}-{stamp}"
    path = Path("runs") / name
    return path if not path.exists() else Path("runs") / f"{name}-{manifest.id[-4:]}"
