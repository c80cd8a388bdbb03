"""What `judge` prints: the panel's figures, failures, the next command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from convbench.cli.console import err, out
from convbench.cli.say import (
    ended,
    fact,
    next_command,
    note,
    of_run,
    printable,
    said_again,
    say_had,
    shown,
    table,
    told,
)
from convbench.schema import text_of

if TYPE_CHECKING:
    from convbench.judge import Panel
    from convbench.judge.all import JudgePreview, JudgeResult
    from convbench.judge.evaluate import EvalResult
    from convbench.judge.loop import Judged
    from convbench.options.judge import JudgeOptions
    from convbench.options.shared import CallOptions

ACCURACY = (
    'convbench query "select temperature, avg(correct::int) from conversations group by 1 '
    'order by 1"'
)


def say_judge(result: JudgeResult, options: JudgeOptions) -> None:
    """Print what `judge` did, or would do; an exit code where too many verdicts have no score."""
    import typer

    name = shown(result.run.path)
    if result.previews:
        for preview in result.previews:
            _say_preview(preview)
        next_command("the same command without --dry-run")
        return
    fact("run", name)
    if result.panel is not None:
        _say_panel(result.panel)
    if result.unjudged:
        note(f"{result.unjudged} conversations failed to build and cannot be judged")
    typed = dict.fromkeys(options.judges) or [judged.name for judged in result.judged]
    for judged, asked in zip(result.judged, typed, strict=False):
        _say_failures(judged)
        more = said_again(options.specs)
        again = f"convbench judge --judge {shlex.quote(asked)} --run {name}{more}"
        ended(judged.jobs, result.run.path, again)
        if judged.failed:
            err.print(f"try the failed ones again: {escape(again)}", soft_wrap=True)
    fails = options.calls.fails
    if any(fails(one.failed, one.failed + one.jobs.done) for one in result.judged):
        raise typer.Exit(1)
    of = of_run(result.run.path)
    next_command(
        f"{ACCURACY}{of}",
        f"convbench publish USER/NAME --dry-run{of}",
    )


def _say_failures(judged: Judged) -> None:
    """Say of how many conversations a judge has no score, and why."""
    for message, count in judged.failures.most_common(2):
        note(f"{judged.name}: {count} without a score: {message}")
    if judged.unsupported:
        note(f"{judged.name}: {judged.unsupported} without a score: their task is unsupported")


def _say_panel(panel: Panel) -> None:
    """Print the means of each judge, what stands beside them, and how judges agree."""
    out.print()
    table(means(panel))
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


def means(panel: Panel) -> Table:
    """Return a table of mean scores, one row a judge."""
    metrics = dict.fromkeys(name for judge in panel.judges for name in judge.means)
    rows = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    rows.add_column("judge", overflow="fold")
    for head in ("scored", "failed", *(metric[:5] for metric in metrics), "reward"):
        rows.add_column(head, justify="right", no_wrap=True)
    for judge in panel.judges:
        scores = [f"{judge.means[m]:.2f}" if m in judge.means else "-" for m in metrics]
        reward = "-" if judge.reward is None else f"{judge.reward.mean:.3f}"
        rows.add_row(
            Text(printable(judge.judge)), str(judge.scored), str(judge.failed), *scores, reward
        )
    return rows


def agreement(panel: Panel) -> Table:
    """Return a table of agreement between judges on the headline metric."""
    rows = Table(box=None, pad_edge=False, caption_justify="left")
    for head in ("judges", "common", "equal", "kappa", "Spearman", "difference"):
        rows.add_column(head, justify="left" if head == "judges" else "right")
    for pair in panel.pairs:
        rows.add_row(
            Text(printable(f"{pair.first} / {pair.second}")), str(pair.common),
            *(_figure(x) for x in (pair.equal, pair.kappa, pair.correlation, pair.difference)),
        )  # fmt: skip
    alpha = _figure(panel.alphas.get(panel.metric))
    rows.caption = f"Krippendorff alpha of {panel.metric}, ordinal: {alpha}"
    return rows


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _say_preview(preview: JudgePreview) -> None:
    fact("judge", f"{preview.name}" + (f" ({preview.model})" if preview.model else ""))
    for message in preview.messages:
        out.print(f"[cyan]{message['role']}[/]")
        out.print(Text(printable(text_of(message["content"]))), soft_wrap=True)
    fact("verdicts", f"{preview.calls:,} to give")
    if preview.model:
        fact(
            "tokens",
            f"about {preview.prompt_tokens:,} prompt, at most {preview.completion_tokens:,} reply",
        )
        usd = preview.usd
        fact("cost", "price unknown" if usd is None else f"at most about ${usd:,.2f}")
    out.print()


def say_eval(result: EvalResult, calls: CallOptions) -> None:
    """Print what `eval` did; an exit code where too much failed."""
    import typer

    path, parent = shown(result.run.path), shown(result.parent.path)
    manifest = result.run.manifest
    fact("run", path)
    fact("parent", parent)
    fact("policy", manifest.cast[manifest.protocol.policy].model)
    built = result.built
    say_had(built)
    again = f"convbench eval {manifest.checkpoint} --run {parent}"
    ended(built.jobs, result.run.path, again)
    if result.judged is None:
        note(f"{parent} has no verdicts, so no judge is known; judge it, then evaluate again")
    else:
        for judged in result.judged.judged:
            _say_failures(judged)
            ended(judged.jobs, result.run.path, again)
        if result.judged.panel is not None:
            out.print()
            table(means(result.judged.panel))
    done = [built.jobs]
    if result.judged is not None:
        done += [one.jobs for one in result.judged.judged]
    if any(calls.fails(jobs.failed, jobs.failed + jobs.done) for jobs in done):
        raise typer.Exit(1)
    next_command(f"convbench report {parent}")
