"""`convbench build`: build or resume a run of conversations."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pydantic import Field

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import (
    USUAL_JUDGE,
    path_text,
    print_conversations,
    print_fact,
    print_preview,
    quoted,
    run_option,
)
from convbench.errors import ConvbenchError, RunError, UsageError
from convbench.options.build import BuildOptions
from convbench.util.usage_estimate import Tokens

if TYPE_CHECKING:
    from convbench.options.shared import SpecOptions
    from convbench.rollout.build import BuildResult
    from convbench.schema import RunManifest


class BuildAnswer(Answer):
    """`build`: a run and its contents."""

    run: str | None
    """Its folder; null on a dry run."""
    task: str
    """The task."""
    protocol: str
    """The protocol."""
    mode: str
    """thinking or standard."""
    policy: str
    """Reference of the policy."""
    questions: dict[str, int]
    """Questions by split."""
    conversations: int = 0
    """Conversations that the run has now."""
    before: int = 0
    """Those of them that existed before."""
    failed: int = 0
    """Conversations that ended in a recorded failure."""
    failures: dict[str, int] = Field(default_factory=dict)
    """Number of failures by message."""
    cut: int = 0
    """Policy turns that reached max_tokens."""
    turns: int = 0
    """Policy turns."""
    flags: dict[str, int] = Field(default_factory=dict)
    """Number of findings by flag."""
    estimate: Tokens | None = None
    """On a dry run: the estimate."""


def run(options: BuildOptions, context: RunContext) -> BuildAnswer:
    """Build or resume a run, and return what it holds, or on a dry run what would be sent.

    Notes and next commands are added. The exit code becomes 1 if failures reach `--fail-on`. Raises
    EarlyExit if the build stopped early, ConvbenchError for what cannot be built.
    """
    from convbench.rollout.build import build_or_resume

    if (options.shards is None) != (options.on is None):
        raise UsageError("expected --shards N and --on ray[:ADDRESS] together")
    if options.on is not None and not options.dry_run:
        return _build_on_ray(options, context)
    result = build_or_resume(options, context.session)
    context.answer = answer = _make_answer(result)
    if result.preview is not None:
        for warning in result.warnings:
            context.add_note(warning)
        if result.problem is not None:
            raise result.problem
        context.add_next(context.as_typed("--dry-run"))
        return answer
    built, path = result.built, result.path
    assert built is not None
    assert path is not None
    context.note_failures(built)
    for warning in result.warnings:
        context.add_note(warning)
    if result.loaded is not None and result.loaded.rejected:
        reasons = ", ".join(f"{n} {why}" for why, n in sorted(result.loaded.rejected.items()))
        context.add_note(f"rows omitted: {reasons}")
    batch = " --batch" * options.calls.batch
    resume = context.carry_options(f"convbench build --run {quoted(path_text(path))}{batch}")
    context.stop_if_ended(built.jobs, path, resume)
    if built.failed:
        context.add_note(f"try the failed ones again: {resume}")
    if options.calls.is_failure(built.failed, built.failed + built.jobs.done):
        context.exit_code = 1  # some of what was requested is missing
        return answer
    context.add_next(judge_line(result.manifest, options.specs, run_option(path)))
    return answer


def _build_on_ray(options: BuildOptions, context: RunContext) -> BuildAnswer:
    """Build the parts of a run on a Ray cluster, merge them, and return what the merged run holds.

    Raises UsageError without `--run`, RunError if that run is there or a part failed.
    """
    from convbench.engine.journal import Journal
    from convbench.engine.ray import run_shards
    from convbench.rollout.build import BuildResult, BuildSummary
    from convbench.store import Run, set_latest
    from convbench.store.merge import merge_runs
    from convbench.tasks.draw import count_splits

    path, calls = options.run, options.calls
    if path is None or options.shards is None or options.shard is not None:
        raise UsageError("--on ray: expected --run DIR, which all nodes see, and no --shard")
    if path.exists():
        raise RunError(f"--run {path}: exists already; expected a new directory for all parts")
    apart = dict.fromkeys(("run", "shards", "on", "budget", "budget-tokens"))
    typed = shlex.split(context.as_typed("--json", "--quiet", "-q", **apart))
    folders = run_shards(
        typed[1:],
        path,
        options.shards,
        address=str(options.on).partition(":")[2] or None,
        budget=calls.budget,
        budget_tokens=calls.budget_tokens,
    )
    merged = merge_runs([Run.open(folder) for folder in folders], path)
    set_latest(merged)
    built = BuildSummary(already_there=merged.attempts().success_count)
    splits = count_splits(example.split for example in merged.examples.values())
    result = BuildResult(path, merged.manifest, built=built, splits=splits)
    context.answer = answer = _make_answer(result)
    if context.session is not None:
        context.session.ledger.all.add(Journal(merged.calls_file).total_cost())
    context.add_next(judge_line(merged.manifest, options.specs, run_option(path)))
    return answer


def _make_answer(result: BuildResult) -> BuildAnswer:
    from convbench.rollout.build import BuildSummary

    m, built = result.manifest, result.built or BuildSummary()
    return BuildAnswer(
        run=None if result.path is None or result.preview else path_text(result.path),
        task=m.task.name,
        protocol=m.protocol.name,
        mode=m.mode,
        policy=m.cast[m.protocol.policy].model,
        questions=dict(result.splits),
        conversations=built.complete,
        before=built.already_there,
        failed=built.failed,
        failures=dict(built.failures),
        cut=built.cut,
        turns=built.turns,
        flags=dict(built.flags),
        estimate=None if result.preview is None else result.preview.estimate,
    ).with_source(result)


def judge_line(manifest: RunManifest, specs: SpecOptions, more: str) -> str:
    """Return the command to judge a run next, as one line; a remark may follow after three spaces.

    It names the task's own judge, plus a model if its rubric names none; else a model if the task
    has a rubric; else it starts a rubric (`convbench init judge`). `more` is put behind the judge.
    """
    from convbench import catalog
    from convbench.judges.kinds import kind_of
    from convbench.judges.rubrics import rubric_of_model
    from convbench.schema import JudgeSpec

    name, folders = manifest.task.judge, specs.folders
    if name is None:
        try:
            rubric_of_model(USUAL_JUDGE, manifest.task, specs=folders)
        except ConvbenchError:
            return "convbench init judge my-rubric   (then: --judge my-rubric@MODEL)"
        return f"convbench judge --judge {USUAL_JUDGE}{more}   (offline: --judge rules)"
    try:
        spec = catalog.load_spec(JudgeSpec, "judges", name, specs=folders)
    except ConvbenchError:  # it is in a folder that was not given this time
        return (
            f"convbench judge --specs DIR --judge {shlex.quote(name)}{more}   (DIR: where it lies)"
        )
    if "model" in kind_of(spec).needs and spec.model is None:
        name = f"{name}@{USUAL_JUDGE}"
    return f"convbench judge --judge {shlex.quote(name)}{more}"


def show(answer: BuildAnswer) -> None:
    """Print what `build` did, or would do."""
    from convbench.tasks.draw import format_counts

    result: BuildResult = answer._source
    questions = format_counts(result.splits)
    if result.preview is not None:
        print_fact("questions", questions)
        print_preview(result.preview)
        return
    print_fact("run", quoted(answer.run or ""))
    print_fact("what", f"{answer.task} · {answer.protocol} · {answer.mode} · {answer.policy}")
    print_fact("questions", questions)
    assert result.built is not None
    print_conversations(result.built)
    if answer.cut:
        print_fact("cut", f"{answer.cut} of {answer.turns} policy turns reached max_tokens")
    for flag, count in result.built.flags.most_common(6):
        print_fact("flagged", f"{flag}: {count}")


build_command = Command(run, show)
