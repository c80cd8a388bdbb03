"""`convbench eval`: evaluate a policy on the test questions of one or several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import (
    out,
    path_text,
    print_conversations,
    print_fact,
    print_preview,
    quoted,
    shell_path,
)
from convbench.commands.judge import JudgedRun, judged_run, print_judge_preview, print_means
from convbench.options.evaluate import EvalOptions
from convbench.util.usage_estimate import Tokens

if TYPE_CHECKING:
    from convbench.engine import Summary
    from convbench.experiments.evaluate import EvalResult
    from convbench.options.shared import CallOptions


class EvaluatedRun(Answer):
    """The evaluation of a policy on one parent's test questions."""

    run: str
    """The child run."""
    parent: str
    """The run whose questions, teacher and judges are used."""
    policy: str
    """Reference of the policy."""
    conversations: int
    """Conversations that the run has now."""
    failed: int
    """Conversations that ended in a recorded failure."""
    judged: JudgedRun | None
    """Its scores; null if the parent has no verdicts."""
    estimate: Tokens | None = None
    """On a dry run: the estimate for the policy; `judged` has those of the judges."""


class EvalAnswer(EvaluatedRun):
    """`eval`: the evaluation of a policy on the parent's test questions."""

    others: list[EvaluatedRun] = Field(default_factory=list)
    """Evaluations of the same policy on further runs."""


def run(options: EvalOptions, context: RunContext) -> EvalAnswer:
    """Evaluate a policy on each run in turn, showing each result when it is ready; return all of
    them.

    The first is the answer itself, the others are in `others`. The exit code becomes 1 if failures
    reach `--fail-on`. Raises EarlyExit if one stopped early; on a dry run the reason why it could
    not start.
    """
    from convbench.experiments.evaluate import evaluate_each

    parts: list[EvaluatedRun] = []
    problems = []
    for result in evaluate_each(options, context.session):
        part = _evaluated_run(result)
        parts.append(part)
        context.answer = answer = EvalAnswer(**dict(parts[0]), others=parts[1:])
        problems += [result.problem] if result.problem is not None else []
        try:
            if _note_outcome(result, options.calls, context):
                context.exit_code = 1
        finally:
            context.show_part(part)
    if context.exit_code == 0 and problems:
        raise problems[0]
    if context.exit_code == 0:
        parents = " ".join(quoted(part.parent) for part in parts)
        dry_run = options.dry_run
        context.add_next(
            context.as_typed("--dry-run") if dry_run else f"convbench report {parents}"
        )
    return answer


def _evaluated_run(result: EvalResult) -> EvaluatedRun:
    manifest = result.run.manifest
    return EvaluatedRun(
        run=path_text(result.run.path),
        parent=path_text(result.parent.path),
        policy=manifest.cast[manifest.protocol.policy].model,
        conversations=result.built.complete,
        failed=result.built.failed,
        judged=None if result.judged is None else judged_run(result.judged),
        estimate=None if result.preview is None else result.preview.estimate,
    ).with_source(result)


def _note_outcome(result: EvalResult, calls: CallOptions, context: RunContext) -> bool:
    """Add notes on failures in one run. Return True if too many failed."""
    parent, built = shell_path(result.parent.path), result.built
    if result.preview is not None:
        if result.judged is None:
            context.add_note("the parent has no verdicts, so no judge would score it")
        return False
    context.note_failures(built)
    batch = " --batch" * calls.batch
    checkpoint = quoted(str(result.run.manifest.checkpoint))
    again = f"convbench eval {checkpoint} --run {parent}{batch}"
    context.stop_if_ended(built.jobs, result.run.path, again)
    if result.judged is None:
        context.add_note(
            f"{parent} has no verdicts, so no judge is known; convbench judge --judge NAME --run "
            f"{parent} scores it and its evaluations"
        )
    judged = result.judged.summaries if result.judged is not None else []
    for summary in judged:
        context.note_unscored(summary)
        context.stop_if_ended(summary.jobs, result.run.path, again)
    return any(calls.is_failure(jobs.failed, jobs.failed + jobs.done) for jobs in _all_jobs(result))


def _all_jobs(result: EvalResult) -> list[Summary]:
    """Return the summaries of the jobs of the policy and of each judge."""
    judged = result.judged.summaries if result.judged is not None else []
    return [result.built.jobs, *(summary.jobs for summary in judged)]


def show(answer: EvaluatedRun) -> None:
    """Print the evaluation on one run."""
    result: EvalResult = answer._source
    print_fact("run", quoted(answer.run))
    print_fact("parent", quoted(answer.parent))
    print_fact("policy", answer.policy)
    if result.preview is not None:
        print_preview(result.preview)
        for preview in result.judged.previews if result.judged is not None else ():
            out.print()
            print_judge_preview(preview)
        return
    print_conversations(result.built)
    is_stopped = any(jobs.interrupted or jobs.stopped is not None for jobs in _all_jobs(result))
    if answer.judged is not None and answer.judged.judges and not is_stopped:
        out.print()
        print_means(answer.judged.judges)


eval_command = Command(run, show)
