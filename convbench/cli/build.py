"""`convbench build`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from convbench.cli.answers.runs import BuildAnswer, Tokens
from convbench.cli.carried import carrying
from convbench.cli.command import as_typed, command
from convbench.cli.envelope import give, wanted
from convbench.cli.foreseen import answer_foreseen, say_foreseen
from convbench.cli.say import (
    USUAL_JUDGE,
    ended,
    fact,
    next_command,
    note,
    of_run,
    path_of,
    say_had,
    say_preview,
    shown,
)
from convbench.errors import ConvbenchError
from convbench.options.build import BuildOptions

if TYPE_CHECKING:
    from convbench.commands.build import BuildResult
    from convbench.options.shared import SpecOptions
    from convbench.rollout.preview import Preview
    from convbench.schema import RunManifest


@command("build", BuildOptions, BuildAnswer)
def build(options: BuildOptions) -> None:
    """Build or resume a run."""
    from convbench.commands.build import build as command

    result = command(options)
    if wanted():
        give(answer_build(result))
    say_build(result, options)


def estimated(preview: Preview) -> Tokens:
    """Return what a run would take."""
    return Tokens(
        conversations=preview.conversations, calls=preview.total_calls,
        prompt_tokens=preview.prompt_tokens, reply_tokens=preview.completion_tokens,
        usd=preview.usd,
    )  # fmt: skip


def answer_build(result: BuildResult) -> BuildAnswer:
    """Return what `build` did, or would do."""
    from convbench.rollout.loop import Built

    m, built = result.manifest, result.built or Built()
    have, every = result.told_probs or (None, None)
    return BuildAnswer(
        run=None if result.path is None or result.preview else path_of(result.path),
        task=m.task.name, protocol=m.protocol.name, mode=m.mode,
        policy=m.cast[m.protocol.policy].model, questions=dict(result.splits),
        conversations=built.had, before=built.kept, failed=built.lost,
        failures=dict(built.failures), cut=built.cut, turns=built.turns, flags=dict(built.flags),
        estimate=None if result.preview is None else estimated(result.preview),
        foreseen=answer_foreseen(result.foreseen), recorded=have, replies=every,
    )  # fmt: skip


def to_judge(manifest: RunManifest, specs: SpecOptions, more: str) -> str:
    """Return the command that judges a run: by the task's own judge, with a model where its rubric
    names none; else by a model, where there is a rubric for it; else one that begins a rubric."""
    from convbench import catalog
    from convbench.judge.kinds import kind_of
    from convbench.judge.rubrics import rubric_of_model
    from convbench.schema import JudgeSpec

    name, folders = manifest.task.judge, specs.folders
    if name is None:
        try:
            rubric_of_model(USUAL_JUDGE, manifest.task, specs=folders)
        except ConvbenchError:
            return "convbench init judge my-rubric   (then: --judge my-rubric@MODEL)"
        return f"convbench judge --judge {USUAL_JUDGE}{more}   (offline: --judge rules)"
    try:
        spec = catalog.load(JudgeSpec, "judges", name, specs=folders)
    except ConvbenchError:  # it lies in a folder that was not named this time
        return (
            f"convbench judge --specs DIR --judge {shlex.quote(name)}{more}   (DIR: where it lies)"
        )
    if "model" in kind_of(spec).needs and spec.model is None:
        name = f"{name}@{USUAL_JUDGE}"
    return f"convbench judge --judge {shlex.quote(name)}{more}"


def say_build(result: BuildResult, options: BuildOptions) -> None:
    """Print what `build` did, or would do; an exit code where too many conversations failed."""
    from convbench.tasks.splits import listed

    if result.preview is not None:
        fact("questions", listed(result.splits))
        say_preview(result.preview)
        for warning in result.warnings:
            note(warning)
        if result.foreseen is not None:
            say_foreseen(result.foreseen)
        if result.problem is not None:
            raise result.problem
        next_command(as_typed("--dry-run"))
        return
    built, path = result.built, result.path
    assert built is not None
    assert path is not None
    manifest = result.manifest
    name = shown(path)
    fact("run", name)
    policy = manifest.cast[manifest.protocol.policy].model
    fact("what", f"{manifest.task.name} · {manifest.protocol.name} · {manifest.mode} · {policy}")
    fact("questions", listed(result.splits))
    say_had(built)
    if built.cut:
        fact("cut", f"{built.cut} of {built.turns} policy turns reached max_tokens")
    if result.told_probs is not None:
        have, every = result.told_probs
        fact("log-probs", f"of {have} of {every} replies of the policy")
        if have < every:
            note(
                f"{every - have} replies have no log-probabilities: {policy} returns none; "
                "training with loss.pi_0=recorded will refuse them"
            )
    unrecorded = result.told_probs is not None and result.told_probs[0] < result.told_probs[1]
    for flag, count in built.flags.most_common(6):
        fact("flagged", f"{flag}: {count}")
    for warning in result.warnings:
        note(warning)
    if result.loaded is not None and result.loaded.rejected:
        left = ", ".join(f"{n} {why}" for why, n in sorted(result.loaded.rejected.items()))
        note(f"rows left out: {left}")
    batch = " --batch" * options.calls.batch
    resume = carrying(f"convbench build --run {name}{batch}")
    ended(built.jobs, path, resume)
    if built.lost:
        note(f"try the failed ones again: {resume}")
    if unrecorded or options.calls.fails(built.lost, built.lost + built.jobs.done):
        raise typer.Exit(1)  # what was asked for is not there
    next_command(to_judge(manifest, options.specs, of_run(path)))
