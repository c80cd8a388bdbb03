"""What the commands print: results on stdout, notes on stderr, always the next command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from convbench.cli.main import err, out
from convbench.schema import text_of

if TYPE_CHECKING:
    from convbench.commands.build import BuildResult
    from convbench.commands.preview import Preview
    from convbench.engine import Summary


def fact(name: str, value: str) -> None:
    """Print one fact of a result."""
    out.print(f"[bold]{name:<14}[/] {escape(value)}", soft_wrap=True)


def note(text: str) -> None:
    """Print a warning to stderr."""
    err.print(f"[yellow]note:[/] {escape(text)}", soft_wrap=True)


def next_command(*commands: str) -> None:
    """Print what to type next."""
    out.print()
    for command in commands:
        out.print(f"[dim]next:[/] {escape(command)}", soft_wrap=True)


def ended(summary: Summary, path: Path, command: str) -> None:
    """Say that a run stopped early and how to resume; raises the exit code."""
    import typer

    if summary.interrupted:
        err.print(f"interrupted; what is done is kept. Resume: {escape(command)}", soft_wrap=True)
        raise typer.Exit(130)
    if summary.stopped is not None:
        err.print(f"[red]stopped:[/] {escape(str(summary.stopped))}", soft_wrap=True)
        err.print(f"what is done is kept. Resume: {escape(command)}", soft_wrap=True)
        raise typer.Exit(1)


def say_build(result: BuildResult) -> None:
    """Print what `build` did, or would do; an exit code where every conversation failed."""
    import typer

    if result.preview is not None:
        say_preview(result.preview)
        next_command("the same command without --dry-run")
        return
    built, path = result.built, result.path
    assert built is not None
    assert path is not None
    manifest = result.manifest
    name = shown(path)
    fact("run", name)
    policy = manifest.cast[manifest.protocol.policy].model
    fact("what", f"{manifest.task.name} · {manifest.protocol.name} · {manifest.mode} · {policy}")
    had = built.jobs.done + built.jobs.failed - built.lost
    fact("conversations", f"{had} had, {built.lost} failed")
    if built.cut:
        fact("cut", f"{built.cut} of {built.turns} policy turns reached max_tokens")
    for flag, count in built.flags.most_common(6):
        fact("flagged", f"{flag}: {count}")
    for warning in result.warnings:
        note(warning)
    for message, count in built.failures.most_common(3):
        note(f"{count} failed: {message}")
    if result.loaded is not None and result.loaded.rejected:
        left = ", ".join(f"{n} {why}" for why, n in sorted(result.loaded.rejected.items()))
        note(f"rows left out: {left}")
    resume = f"convbench build --run {name}"
    ended(built.jobs, path, resume)
    if built.lost:
        note(f"try the failed ones again: {resume}")
    if built.lost and not had:
        raise typer.Exit(1)
    judge = manifest.task.judge
    offline = "" if judge == "rules" else "   (offline: --judge rules)"
    next_command(f"convbench judge --judge {judge or 'claude-opus'}{offline}")


def shown(path: Path) -> str:
    """Return a path as a user would type it: relative where it lies below here."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def say_preview(preview: Preview) -> None:
    """Print the exact messages of the first example, then the estimate."""
    from convbench.commands.calls import SCRIPT

    example = preview.example
    fact("example", f"{example.example_id} ({example.split})")
    for call in preview.calls:
        out.print()
        model = "" if call.model == SCRIPT else f" · {escape(call.model)}"
        out.rule(f"[bold]{escape(call.speaker)}[/] · step {escape(call.step)}{model}", align="left")
        for message in call.messages:
            out.print(f"[cyan]{message['role']}[/]")
            out.print(escape(text_of(message["content"])), soft_wrap=True)
    out.print()
    say_estimate(preview)


def say_estimate(preview: Preview) -> None:
    """Print calls, tokens and dollars of the whole run."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("conversations", f"{preview.conversations:,}")
    table.add_row("calls", f"{preview.total_calls:,}")
    table.add_row("prompt tokens", f"at most about {preview.prompt_tokens:,}")
    table.add_row("reply tokens", f"at most {preview.completion_tokens:,}")
    if preview.usd is None and not preview.unpriced:
        price = "depends on the model: convbench build … --model NAME --dry-run"
    elif preview.usd is None:
        price = f"unknown (no price known for {', '.join(preview.unpriced)})"
    else:
        price = f"at most about ${preview.usd:,.2f}"
    table.add_row("cost", price)
    out.print(table)
