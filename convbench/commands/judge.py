"""`convbench judge`: score the conversations of runs with one or several judges."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field
from rich.table import Table
from rich.text import Text

from convbench.commands._command import INTERRUPTED, Answer, Command, EarlyExit, RunContext
from convbench.commands._duels import Duels, duel_answer, note_duels, print_duels
from convbench.commands._output import (
    out,
    path_text,
    print_fact,
    print_line,
    print_messages,
    print_reply_schema,
    print_report_table,
    print_table,
    quoted,
    run_option,
    shell_path,
)
from convbench.options.judge import JudgeOptions
from convbench.util.printable import make_printable
from convbench.util.usage_estimate import Tokens

if TYPE_CHECKING:
    from convbench.judges.controls import ControlResult
    from convbench.judges.run import JudgePreview, JudgeResult
    from convbench.reports.frame import Setting

ACCURACY = (
    'convbench query "select temperature, avg(correct::int) from conversations group by 1 '
    'order by 1"'
)
SCORES = 'convbench query "select judge, {} from verdicts group by 1 order by 1"'


class JudgeScores(Answer):
    """The scores of one judge of a run."""

    judge: str
    """Its name."""
    scored: int
    """Number of conversations that it has scored."""
    failed: int
    """Number of conversations that it could not score."""
    means: dict[str, float]
    """Mean score by metric."""
    reward: float | None
    """Mean reward."""
    error: float | None
    """Its standard error, clustered by group."""


class JudgedRun(Answer):
    """One run that was judged."""

    run: str
    """Its folder."""
    judges: list[JudgeScores] = Field(default_factory=list)
    """All judges of the run."""
    unjudged: int = 0
    """Number of conversations that failed in the build and cannot be judged."""
    failures: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Number of missing scores by judge, then by message."""
    estimate: dict[str, Tokens] = Field(default_factory=dict)
    """On a dry run: the estimate by judge."""
    messages: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    """On a dry run: the messages of the first call, by judge with a model."""
    reply_schemas: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """On a dry run: the schema for the reply by judge, if its model takes one."""
    duels: list[Duels] = Field(default_factory=list)
    """With --pairwise: one comparison for every two policies."""


class JudgeAnswer(Answer):
    """`judge`: the runs that were judged."""

    runs: list[JudgedRun]
    """One for each `--run`, in the order typed, and for each of its evaluations."""


def _refuse_judges(names: Sequence[str], specs: Sequence[Path]) -> None:
    """Raise UsageError if one of these names of runs is a judge's."""
    from convbench.judges.command import refuse_judge_as_run

    for name in names:
        refuse_judge_as_run(name, specs, [run for run in names if run != name])


def run(options: JudgeOptions, context: RunContext) -> JudgeAnswer:
    """Score each run and its evaluations in turn, showing each result when it is ready; return all
    of them.

    The exit code becomes 1 if failures reach `--fail-on` or a judge stopped, 130 after an
    interruption, which ends the rest. Nothing is judged if one of the runs does not exist.
    """
    from convbench.judges.command import judge_each, run_to_judge

    for each in context.each if not options.pairwise else ():
        run_to_judge(each)  # raises before any is judged if another does not exist
    code = 0
    parts: list[JudgedRun] = []
    results = (
        (each, n, result)
        for each in context.each
        for n, result in enumerate(judge_each(each, context.session))
    )
    for each, number, result in results:
        parts.append(judged_run(result))
        context.answer = JudgeAnswer(runs=parts)
        try:
            _note_outcome(result, each, context, goes_on=number == 0)
        except EarlyExit as ended:
            code = max(code, ended.exit_code)
            if ended.exit_code == INTERRUPTED:
                break
        finally:
            context.show_part(parts[-1])
    context.exit_code = code
    return JudgeAnswer(runs=parts)


def judged_run(result: JudgeResult) -> JudgedRun:
    """Return the answer for one run: `judges` are all that have scored it, also before; `failures`
    are of this time."""
    from convbench.reports.frame import read_settings

    previews = result.previews
    settings: list[Setting] = []
    if not previews and not result.comparisons:
        settings = read_settings([result.run], "all", allow=True, skip_empty=True, alone=True)
    return JudgedRun(
        run=path_text(result.run.path),
        judges=[scores for setting in settings for scores in _judge_scores(setting)],
        unjudged=result.unjudged,
        failures={
            judged.name: dict(judged.failures) for judged in result.summaries if judged.failures
        },
        estimate={preview.name: preview.estimate for preview in previews},
        messages={
            preview.name: [dict(message) for message in preview.messages]
            for preview in previews
            if preview.messages
        },
        reply_schemas={
            preview.name: preview.reply_schema
            for preview in previews
            if preview.reply_schema is not None
        },
        duels=[duel_answer(compared) for compared in result.comparisons],
    ).with_source((result, settings))


def _judge_scores(setting: Setting) -> Iterator[JudgeScores]:
    """Yield the means of each judge of a run, as the report has them."""
    from convbench.reports.frame import mean_of
    from convbench.reports.metrics import metrics_of

    metrics = [metric for metric in metrics_of(setting) if metric.judge]
    for judge in setting.judges:
        failed, reward = setting.rows[f"{judge}/failed"], mean_of(setting.rows, f"{judge}/reward")
        keys = [metric.key for metric in metrics if metric.judge == judge]
        means = {key.removeprefix(f"{judge}/"): mean_of(setting.rows, key) for key in keys}
        yield JudgeScores(
            judge=judge,
            scored=int((failed == 0).sum()),
            failed=int((failed == 1).sum()),
            means={name: mean.mean for name, mean in means.items() if mean and name != "reward"},
            reward=reward and reward.mean,
            error=reward and reward.error,
        )


def _note_outcome(
    result: JudgeResult, options: JudgeOptions, context: RunContext, *, goes_on: bool
) -> None:
    """Add notes on failures, and with `goes_on` the next commands. Raises the exception that ends
    the command if too many verdicts have no score, or on a dry run the reason why nothing would be
    sent."""
    for warning in result.warnings:
        context.add_note(warning)
    if result.previews:
        if result.problem is not None:
            raise result.problem
        if goes_on:
            context.add_next(context.as_typed("--dry-run"))
        return
    if result.comparisons:
        note_duels(result, options, context)
        return
    if result.unjudged:
        context.add_note(f"{result.unjudged} conversations failed to build and cannot be judged")
    typed = dict.fromkeys(options.judges) or [judged.name for judged in result.summaries]
    for judged, name in zip(result.summaries, typed, strict=False):
        batch = " --batch" * options.calls.batch
        run = shell_path(result.run.path)
        again = f"convbench judge --judge {shlex.quote(name)} --run {run}{batch}"
        context.note_judged(judged, result.run.path, again)
    fails = options.calls.is_failure
    if any(
        fails(judged.failed_count, judged.failed_count + judged.jobs.done)
        for judged in result.summaries
    ):
        raise EarlyExit(1)
    if goes_on:
        run_flag = run_option(result.run.path)
        publish = f"convbench publish USER/NAME --dry-run{run_flag}{_whose_reward(result)}"
        context.add_next(f"{_next_query(result)}{run_flag}", publish)


def _whose_reward(result: JudgeResult) -> str:
    """Return the option that `publish` needs if a run has verdicts of several judges."""
    several = len({judge for judge, _ in result.run.judge_fingerprints()}) > 1
    return (
        f" --judge {shlex.quote(result.summaries[0].name)}" if several and result.summaries else ""
    )


def _next_query(result: JudgeResult) -> str:
    """Return a query to try next: accuracy, or the judges' own metrics if they have other than the
    standing ones."""
    from convbench.store.columns import METRICS
    from convbench.store.views import metric_columns

    names = {judged.name.partition("@")[0] for judged in result.summaries}
    specs = result.run.judge_specs().values()
    metrics = metric_columns(spec for spec in specs if spec.name in names)
    own = [name for name in metrics if name not in METRICS and name.isidentifier()]
    return SCORES.format(", ".join(f"avg({name})" for name in own[:3])) if own else ACCURACY


def show(answer: JudgedRun) -> None:
    """Print the result of `judge` on one run, or its preview."""
    result: JudgeResult
    result, settings = answer._source
    if result.comparisons:
        print_duels(result.comparisons)
        return
    print_fact("run", quoted(answer.run))
    for preview in result.previews:
        print_judge_preview(preview)
    if result.previews:
        return
    for setting in settings:
        out.print()
        print_means(answer.judges)
        _print_agreement(setting)
    for judge, controls in result.controls.items():
        _print_controls(judge, controls)


def print_means(judges: Sequence[JudgeScores]) -> None:
    """Print mean scores with two decimals and the mean reward with three, one row for each judge.

    Judges with the same metrics share a table, which is split if it is too wide.
    """
    from convbench.reports.document import Column, Row, Table

    alike: dict[tuple[str, ...], list[JudgeScores]] = {}
    for judge in judges:
        alike.setdefault(tuple(judge.means), []).append(judge)
    for metrics, some in alike.items():
        columns = (
            Column("judge", "judge", text=True),
            *(Column(head, head) for head in ("scored", "failed")),
            *(Column(name, name, name if len(name) < 9 else f"{name[:5]}.", 2) for name in metrics),
            Column("reward", "reward", digits=3),
        )
        rows = (Row((j.judge, j.scored, j.failed, *j.means.values(), j.reward)) for j in some)
        print_report_table(Table("", "", columns, tuple(rows)))


def _print_agreement(setting: Setting) -> None:
    """Print how each judge's scores go with length, and how the judges agree."""
    from convbench.reports.judges import agreement_table
    from convbench.reports.metrics import headlines
    from convbench.stats.agreement import spearman

    lengths, names = [], set()
    for metric in (metric for metric in headlines(setting) if metric.judge):
        known = setting.rows[setting.rows[metric.key].notna()]
        found = spearman(known[metric.key], known["words"])
        names.add(metric.key.removeprefix(f"{metric.judge}/"))
        lengths += [f"{metric.judge} {found:+.2f}"] if found is not None else []
    if lengths:
        scores = names.pop() if len(names) == 1 else "scores"
        head = f"Spearman correlation of {scores} with reply length: "
        print_line(out, head, "dim", ", ".join(lengths))
    table = agreement_table(setting)
    if table is not None:
        out.print()
        print_report_table(table)


def _print_controls(name: str, results: list[ControlResult]) -> None:
    """Print a judge's scores for control answers that deserve nothing."""
    rows = Table(box=None, pad_edge=False)
    for head in ("control", "score", "policy's own", "examples", "no score"):
        rows.add_column(head, justify="left" if head == "control" else "right")
    for result in results:
        own = "-" if not result.examples else f"{result.own:.2f}"
        score = "-" if not result.examples else f"{result.score:.2f}"
        rows.add_row(result.control, score, own, str(result.examples), str(result.failed))
    out.print()
    out.print(Text(f"controls of {make_printable(name)}"))
    print_table(rows)


def print_judge_preview(preview: JudgePreview) -> None:
    """Print the messages that one judge would be sent, and the cost."""
    print_fact("judge", f"{preview.name}" + (f" ({preview.model})" if preview.model else ""))
    if preview.messages:
        print_messages("judge", preview.messages)
        if preview.reply_schema is not None:
            print_reply_schema(preview.reply_schema)
        out.print()
    estimate = preview.estimate
    print_fact("verdicts", f"{estimate.conversations:,} to give")
    if preview.model:
        print_fact("calls", f"{estimate.calls:,}")
        prompt, reply = estimate.prompt_tokens, estimate.reply_tokens
        print_fact("tokens", f"about {prompt:,} prompt, at most {reply:,} reply")
        usd = estimate.usd
        print_fact("cost", "price unknown" if usd is None else f"at most about ${usd:,.2f}")
    out.print()


judge_command: Command[JudgeOptions, Any] = Command(run, show, _refuse_judges)
