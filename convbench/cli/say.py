"""What the commands print: results on stdout, notes on stderr, always the next command."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from convbench.cli.console import err, out
from convbench.errors import ConvbenchError
from convbench.schema import text_of
from convbench.tasks.splits import listed

if TYPE_CHECKING:
    from convbench.commands.build import BuildResult
    from convbench.engine import Summary
    from convbench.options.build import BuildOptions
    from convbench.options.shared import SpecOptions
    from convbench.rollout.loop import Built
    from convbench.rollout.preview import Preview
    from convbench.schema import RunManifest

USUAL_JUDGE = "claude-opus"
"""The judge named where a task names none."""
INDENT = 15
"""Columns before the lines that follow on the first, at most."""
STEERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
WHOLE = 100_000
"""Columns for a table that goes to a program: nothing in it is broken."""


def printable(text: str) -> str:
    """Return text in which nothing steers a terminal: no escapes, no change of direction."""
    return STEERS.sub("�", text.replace("\r\n", "\n"))


def told(console: Console, head: str, style: str, text: str) -> None:
    """Print text after a head: as one line where it goes to a program; on a terminal broken
    between words, never inside one, so that a path or an address can still be copied."""
    text = printable(text)
    if console.is_terminal and cell_len(head + text) > console.width:
        lines = textwrap.wrap(  # with a word in the place of the head, whose spaces would go
            "x" * len(head) + text, console.width, subsequent_indent=" " * min(len(head), INDENT),
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        text = "\n".join(lines)[len(head) :]
    console.print(Text.assemble((head, style), text), soft_wrap=True)


def fact(name: str, value: str) -> None:
    """Print one fact of a result."""
    told(out, f"{name:<{INDENT - 1}} ", "bold", value)


def note(text: str) -> None:
    """Print a warning to stderr."""
    told(err, "note: ", "yellow", text)


def table(found: Table, most: int = WHOLE) -> None:
    """Print a table: fitted to a terminal, `most` columns there, unbroken where it goes to a
    program."""
    if out.is_terminal:
        out.print(found, width=min(out.width, most))
        return
    wide = Console(width=WHOLE, color_system=None)
    with wide.capture() as drawn:
        wide.print(found)
    for line in drawn.get().rstrip("\n").split("\n"):
        out.print(Text(line.rstrip()), soft_wrap=True)


def next_command(*commands: str) -> None:
    """Print what to type next. A remark may stand after three spaces."""
    out.print()
    for text in commands:
        command, _, remark = printable(text).partition("   ")
        fits = not out.is_terminal or len("next: ") + cell_len(text) <= out.width
        gap = "   " if fits else "\n      "
        line = Text.assemble(("next: ", "dim"), command, (gap + remark.strip(), "dim"))
        line.rstrip()
        out.print(line, soft_wrap=True)


def ended(summary: Summary, path: Path, command: str) -> None:
    """Say that a run stopped early and how to resume; raises the exit code."""
    import typer

    if summary.interrupted:
        err.print(f"interrupted; what is done is kept. Resume: {escape(command)}", soft_wrap=True)
        raise typer.Exit(130)
    if summary.stopped is not None:
        told(err, "stopped: ", "red", str(summary.stopped))
        err.print(f"what is done is kept. Resume: {escape(command)}", soft_wrap=True)
        raise typer.Exit(1)


@contextmanager
def spending(options: Any) -> Iterator[Any]:
    """Say what was spent when a command of these options ends, however it ends."""
    from convbench.engine.spending import spending as line

    try:
        yield options
    finally:
        if found := line(options.calls.ledger):
            told(err, "spent: ", "bold", found)


def say_had(built: Built) -> None:
    """Print how many conversations a run has and how many failed, and why."""
    before = f" ({built.kept} before, {built.jobs.done} now)" if built.kept else ""
    fact("conversations", f"{built.had} had{before}, {built.lost} failed")
    for message, count in built.failures.most_common(3):
        note(f"{count} failed: {message}")


def said_again(specs: SpecOptions) -> str:
    """Return the options that a next command needs to find what this one found."""
    said = {"--specs": specs.folders, "--plugin": specs.plugins}
    return "".join(f" {flag} {shown(one)}" for flag, paths in said.items() for one in paths)


def _judge_to_name(manifest: RunManifest, specs: SpecOptions) -> str:
    """Return what goes after `--judge` for a task's own judge, with a model where its rubric names
    none."""
    from convbench import catalog
    from convbench.judge.kinds import kind_of
    from convbench.schema import JudgeSpec

    name = manifest.task.judge
    if name is None:
        return USUAL_JUDGE
    with suppress(ConvbenchError):
        spec = catalog.load(JudgeSpec, "judges", name, specs=specs.folders)
        if "model" in kind_of(spec).needs and spec.model is None:
            return f"{name}@{USUAL_JUDGE}"
    return name


def say_build(result: BuildResult, options: BuildOptions) -> None:
    """Print what `build` did, or would do; an exit code where too many conversations failed."""
    import typer

    if result.preview is not None:
        fact("questions", listed(result.splits))
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
    fact("questions", listed(result.splits))
    say_had(built)
    if built.cut:
        fact("cut", f"{built.cut} of {built.turns} policy turns reached max_tokens")
    for flag, count in built.flags.most_common(6):
        fact("flagged", f"{flag}: {count}")
    for warning in result.warnings:
        note(warning)
    if result.loaded is not None and result.loaded.rejected:
        left = ", ".join(f"{n} {why}" for why, n in sorted(result.loaded.rejected.items()))
        note(f"rows left out: {left}")
    resume = f"convbench build --run {name}{said_again(options.specs)}"
    ended(built.jobs, path, resume)
    if built.lost:
        note(f"try the failed ones again: {resume}")
    if options.calls.fails(built.lost, built.lost + built.jobs.done):
        raise typer.Exit(1)
    judge = _judge_to_name(manifest, options.specs)
    offline = "" if manifest.task.judge else "   (offline: --judge rules)"
    more = f"{of_run(path)}{said_again(options.specs)}"
    next_command(f"convbench judge --judge {shlex.quote(judge)}{more}{offline}")


def shown(path: Path) -> str:
    """Return a path as a user would type it: relative where it lies below here."""
    with suppress(ValueError):
        path = path.resolve().relative_to(Path.cwd())
    return shlex.quote(str(path))


def of_run(path: Path, option: str = "--run ") -> str:
    """Return what names a run in a next command; empty for the newest, which is meant without."""
    latest = Path("runs") / "latest"
    return "" if latest.resolve() == path.resolve() else f" {option}{shown(path)}"


def say_preview(preview: Preview) -> None:
    """Print the exact messages of the first example, then the estimate."""
    from convbench.rollout.calls import SCRIPT

    example = preview.example
    fact("example", f"{example.example_id} ({example.split})")
    for call in preview.calls:
        out.print()
        model = "" if call.model == SCRIPT else f" · {escape(call.model)}"
        out.rule(f"[bold]{escape(call.speaker)}[/] · step {escape(call.step)}{model}", align="left")
        for message in call.messages:
            out.print(f"[cyan]{message['role']}[/]")
            out.print(Text(printable(text_of(message["content"]))), soft_wrap=True)
    out.print()
    say_estimate(preview)


def say_estimate(preview: Preview) -> None:
    """Print calls, tokens and dollars of the whole run."""
    found = Table(box=None, show_header=False, pad_edge=False)
    found.add_row("conversations", f"{preview.conversations:,}")
    found.add_row("calls", f"{preview.total_calls:,}")
    found.add_row("prompt tokens", f"at most about {preview.prompt_tokens:,}")
    found.add_row("reply tokens", f"at most {preview.completion_tokens:,}")
    if preview.usd is None and not preview.unpriced:
        price = "depends on the model: convbench build … --model NAME --dry-run"
    elif preview.usd is None:
        price = f"unknown (no price known for {', '.join(preview.unpriced)})"
    else:
        price = f"at most about ${preview.usd:,.2f}"
    found.add_row("cost", price)
    table(found)
