"""`convbench judge`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from convbench.cli.answers.judged import JudgeAnswer, JudgedRun, JudgeScores
from convbench.cli.answers.runs import Tokens
from convbench.cli.carried import carrying
from convbench.cli.command import as_typed, command
from convbench.cli.console import err, out
from convbench.cli.envelope import INTERRUPTED, give, wanted
from convbench.cli.foreseen import answer_foreseen, say_foreseen
from convbench.cli.pairwise import answer_duels, say_compared
from convbench.cli.say import (
    ended,
    fact,
    next_command,
    note,
    of_run,
    path_of,
    say_failures,
    say_means,
    say_messages,
    say_reply_schema,
    shown,
    table,
    told,
)
from convbench.options.judge import JudgeOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.judge.all import JudgePreview, JudgeResult
    from convbench.judge.controls import Told
    from convbench.judge.panel import Panel

ACCURACY = (
    'convbench query "select temperature, avg(correct::int) from conversations group by 1 '
    'order by 1"'
)
SCORES = 'convbench query "select judge, {} from verdicts group by 1 order by 1"'


def _refuse_judges(names: Sequence[str], specs: Sequence[Path]) -> None:
    """Say how a judge is typed where one stands in the place of a run."""
    from convbench.commands.judge import refuse_judge_as_run

    for name in names:
        refuse_judge_as_run(name, specs, [run for run in names if run != name])


@command("judge", JudgeOptions, JudgeAnswer, refuse_runs=_refuse_judges)
def judge(each: list[JudgeOptions]) -> None:
    """Score runs."""
    from convbench.commands.judge import judge_each, run_to_judge

    for options in each if not each[0].pairwise else ():
        run_to_judge(options)  # so that none is judged where another is not there
    code, runs = 0, []
    results = ((o, n, result) for o in each for n, result in enumerate(judge_each(o)))
    for options, number, result in results:
        try:
            if wanted():
                runs.append(answer_judge(result))
                give(JudgeAnswer(runs=runs))
            say_judge(result, options, goes_on=number == 0)
        except typer.Exit as ended:
            code = max(code, ended.exit_code)
            if ended.exit_code == INTERRUPTED:
                break
    if code:
        raise typer.Exit(code)


def answer_judge(result: JudgeResult) -> JudgedRun:
    """Return what came of one run."""
    found = result.panel.judges if result.panel is not None else ()
    return JudgedRun(
        run=path_of(result.run.path),
        judges=[
            JudgeScores(
                judge=one.judge, scored=one.scored, failed=one.failed, means=dict(one.means),
                reward=one.reward.mean if one.reward else None,
                error=one.reward.error if one.reward else None,
            )
            for one in found
        ],
        unjudged=result.unjudged,
        failures={one.name: dict(one.failures) for one in result.judged if one.failures},
        estimate={
            one.name: Tokens(
                conversations=one.verdicts, calls=one.calls, prompt_tokens=one.prompt_tokens,
                reply_tokens=one.completion_tokens, usd=one.usd,
            )
            for one in result.previews
        },
        messages={
            one.name: [dict(message) for message in one.messages]
            for one in result.previews
            if one.messages
        },
        reply_schemas={
            one.name: one.reply_schema for one in result.previews if one.reply_schema is not None
        },
        foreseen=answer_foreseen(result.foreseen),
        duels=[answer_duels(one) for one in result.compared],
    )  # fmt: skip


def say_judge(result: JudgeResult, options: JudgeOptions, *, goes_on: bool = True) -> None:
    """Print what `judge` did, or would do, and what comes next (`goes_on`; not after each of a
    run's evaluations); an exit code where too many verdicts have no score."""
    name = shown(result.run.path)
    if result.previews:
        _say_previews(result, goes_on)
        return
    if result.compared:
        _say_warnings(result)
        say_compared(result, options)
        return
    fact("run", name)
    if result.panel is not None:
        _say_panel(result.panel)
    for tried, found in result.controls.items():
        _say_controls(tried, found)
    _say_warnings(result)
    if result.unjudged:
        note(f"{result.unjudged} conversations failed to build and cannot be judged")
    typed = dict.fromkeys(options.judges) or [judged.name for judged in result.judged]
    for judged, asked in zip(result.judged, typed, strict=False):
        say_failures(judged)
        batch = " --batch" * options.calls.batch
        again = carrying(f"convbench judge --judge {shlex.quote(asked)} --run {name}{batch}")
        ended(judged.jobs, result.run.path, again)
        if judged.failed:
            err.print(f"try the failed ones again: {escape(again)}", soft_wrap=True)
    fails = options.calls.fails
    if any(fails(one.failed, one.failed + one.jobs.done) for one in result.judged):
        raise typer.Exit(1)
    of = of_run(result.run.path)
    if not goes_on:
        return
    next_command(
        f"{_question(result)}{of}",
        f"convbench publish USER/NAME --dry-run{of}{_whose_reward(result)}",
    )


def _whose_reward(result: JudgeResult) -> str:
    """Return the option that `publish` needs where a run has verdicts of several judges."""
    several = result.panel is not None and len(result.panel.judges) > 1
    return f" --judge {shlex.quote(result.judged[0].name)}" if several and result.judged else ""


def _say_warnings(result: JudgeResult) -> None:
    for warning in result.warnings:
        note(warning)


def _say_previews(result: JudgeResult, goes_on: bool) -> None:
    """Print what each judge would be sent of a run."""
    fact("run", shown(result.run.path))
    for preview in result.previews:
        say_judge_preview(preview)
    _say_warnings(result)
    if result.foreseen is not None:
        say_foreseen(result.foreseen)
    if result.problem is not None:
        raise result.problem
    if goes_on:
        next_command(as_typed("--dry-run"))


def _question(result: JudgeResult) -> str:
    """Return the query to try next: accuracy, or the scores of the judges that were asked where
    they have others than the rubric's that always have columns."""
    from convbench.store.columns import METRICS
    from convbench.store.views import metric_columns

    names = {judged.name.partition("@")[0] for judged in result.judged}
    specs = result.run.judge_specs().values()
    found = metric_columns(spec for spec in specs if spec.name in names)
    own = [name for name in found if name not in METRICS and name.isidentifier()]
    return SCORES.format(", ".join(f"avg({name})" for name in own[:3])) if own else ACCURACY


def _say_panel(panel: Panel) -> None:
    """Print the means of each judge, what stands beside them, and how judges agree."""
    out.print()
    say_means(panel)
    lengths = ", ".join(
        f"{judge.judge} {judge.length:+.2f}" for judge in panel.judges if judge.length is not None
    )
    if lengths:
        head = f"Spearman of {panel.metric} with the policy's words: "
        told(out, head, "dim", lengths)
    for found in panel.judges:
        if found.constant is not None:
            told(out, f"{found.judge}: ", "dim", str(found.constant))
    if panel.pairs:
        out.print()
        table(agreement(panel))
    if panel.unpaired:
        note(f"{panel.unpaired} more judges are not compared with any other")


def _say_controls(name: str, found: list[Told]) -> None:
    """Print what answers that deserve nothing got from a judge."""
    rows = Table(box=None, pad_edge=False)
    for head in ("control", "score", "policy's own", "examples", "no score"):
        rows.add_column(head, justify="left" if head == "control" else "right")
    for one in found:
        own = "-" if not one.examples else f"{one.own:.2f}"
        score = "-" if not one.examples else f"{one.score:.2f}"
        rows.add_row(one.control, score, own, str(one.examples), str(one.failed))
    out.print()
    out.print(Text(f"controls of {printable(name)}"))
    table(rows)


def agreement(panel: Panel) -> Table:
    """Return a table of agreement between judges on their headlines."""
    rows = Table(box=None, pad_edge=False, caption_justify="left")
    for head in ("judges", "common", "equal", "kappa", "Spearman", "difference"):
        rows.add_column(head, justify="left" if head == "judges" else "right")
    for pair in panel.pairs:
        rows.add_row(
            Text(printable(f"{pair.first} / {pair.second}")), str(pair.common),
            *(_figure(x) for x in (pair.equal, pair.kappa, pair.correlation)),
            _figure(None if pair.apart is None else pair.apart.mean),
        )  # fmt: skip
    rows.caption = (
        "Headline scores, each brought to 0 to 1 by its judge's scale. Krippendorff alpha, "
        f"ordinal: {_figure(panel.alpha)}"
    )
    return rows


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def say_judge_preview(preview: JudgePreview) -> None:
    """Print what one judge would be sent, and what it would cost."""
    fact("judge", f"{preview.name}" + (f" ({preview.model})" if preview.model else ""))
    if preview.messages:
        say_messages("judge", preview.messages)
        if preview.reply_schema is not None:
            say_reply_schema(preview.reply_schema, preview.structured)
        out.print()
    fact("verdicts", f"{preview.verdicts:,} to give")
    if preview.model:
        fact("calls", f"{preview.calls:,}")
        fact(
            "tokens",
            f"about {preview.prompt_tokens:,} prompt, at most {preview.completion_tokens:,} reply",
        )
        usd = preview.usd
        fact("cost", "price unknown" if usd is None else f"at most about ${usd:,.2f}")
    out.print()
