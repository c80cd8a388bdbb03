"""`convbench eval`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from convbench.cli.answers.measured import EvalAnswer, EvaluatedRun
from convbench.cli.build import estimated
from convbench.cli.command import as_typed, command
from convbench.cli.console import out
from convbench.cli.envelope import give
from convbench.cli.judge import answer_judge, say_judge_preview
from convbench.cli.say import (
    ended,
    fact,
    next_command,
    note,
    path_of,
    say_failures,
    say_had,
    say_means,
    say_preview,
    shown,
)
from convbench.options.evaluate import EvalOptions

if TYPE_CHECKING:
    from convbench.experiment.evaluate import EvalResult
    from convbench.options.shared import CallOptions
    from convbench.rollout.preview import Preview


@command("eval", EvalOptions, EvalAnswer)
def evaluate(options: EvalOptions) -> None:
    """Evaluate a policy."""
    from convbench.commands.evaluate import evaluate_each

    parents, answers, problems, failed = [], [], [], False
    for result in evaluate_each(options):
        parents.append(shown(result.parent.path))
        answers.append(evaluated(result))
        give(EvalAnswer(**dict(answers[0]), others=answers[1:]))
        problems += [result.problem] if result.problem is not None else []
        failed = say_eval(result, options.calls) or failed
    if failed:
        raise typer.Exit(1)
    if problems:
        raise problems[0]
    if options.dry_run:
        next_command(as_typed("--dry-run"))
        return
    next_command("convbench report " + " ".join(parents))


def evaluated(result: EvalResult) -> EvaluatedRun:
    """Return what `eval` did on one run."""
    manifest = result.run.manifest
    return EvaluatedRun(
        run=path_of(result.run.path),
        parent=path_of(result.parent.path),
        policy=manifest.cast[manifest.protocol.policy].model,
        conversations=result.built.had,
        failed=result.built.lost,
        judged=None if result.judged is None else answer_judge(result.judged),
        estimate=None if result.preview is None else estimated(result.preview),
    )


def say_eval(result: EvalResult, calls: CallOptions) -> bool:
    """Print what `eval` did on one run; return whether too much failed."""
    path, parent = shown(result.run.path), shown(result.parent.path)
    manifest = result.run.manifest
    fact("run", path)
    fact("parent", parent)
    fact("policy", manifest.cast[manifest.protocol.policy].model)
    if result.preview is not None:
        _say_previews(result, result.preview)
        return False
    built = result.built
    say_had(built)
    batch = " --batch" * calls.batch
    again = f"convbench eval {manifest.checkpoint} --run {parent}{batch}"
    ended(built.jobs, result.run.path, again)
    if result.judged is None:
        note(
            f"{parent} has no verdicts, so no judge is known; convbench judge --judge NAME --run "
            f"{parent} scores it and its evaluations"
        )
    else:
        for judged in result.judged.judged:
            say_failures(judged)
            ended(judged.jobs, result.run.path, again)
        if result.judged.panel is not None:
            out.print()
            say_means(result.judged.panel)
    done = [built.jobs]
    if result.judged is not None:
        done += [one.jobs for one in result.judged.judged]
    return any(calls.fails(jobs.failed, jobs.failed + jobs.done) for jobs in done)


def _say_previews(result: EvalResult, shown: Preview) -> None:
    """Print what a dry run would send: the policy, then the parent's judges."""
    say_preview(shown)
    if result.judged is None:
        note("the parent has no verdicts, so no judge would score it")
        return
    for one in result.judged.previews:
        out.print()
        say_judge_preview(one)
