"""What the commands print: results on stdout, notes on stderr, always the next command."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from convbench.cli.carried import carrying
from convbench.cli.console import err, out
from convbench.cli.envelope import named_next, noted, spent
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.engine import Summary
    from convbench.judge.panel import JudgeMeans, Panel
    from convbench.judge.units import Judged
    from convbench.report.document import Document
    from convbench.rollout.loop import Built
    from convbench.rollout.preview import Preview
    from convbench.schema import Message
    from convbench.words import Structured

INDENT = 15
"""Columns before the lines that follow on the first, at most."""
USUAL_JUDGE = "claude-opus"
"""The judge model named in a next line where nothing names another."""
WHOLE = 100_000
"""Columns for a table that goes to a program: nothing in it is broken."""


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
    noted(printable(text))
    told(err, "note: ", "yellow", text)


def table(found: RenderableType, most: int = WHOLE) -> None:
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


def say_document(document: Document) -> None:
    """Print a report: fitted to a terminal, unbroken where it goes to a program."""
    from convbench.report.terminal import terminal

    console = out if out.is_terminal else Console(width=WHOLE, color_system=None)
    for item in terminal(document, console):
        table(item)


def next_command(*commands: str) -> None:
    """Print what to type next, with what this command was typed with and the next one needs too
    (`carrying`). A remark may stand after three spaces."""
    out.print()
    for text in commands:
        command, _, remark = printable(text).partition("   ")
        command = carrying(command)
        named_next(command)
        whole = f"next: {command}   {remark.strip()}"
        fits = not out.is_terminal or cell_len(whole.rstrip()) <= out.width
        gap = "   " if fits else "\n      "
        line = Text.assemble(("next: ", "dim"), command, (gap + remark.strip(), "dim"))
        line.rstrip()
        out.print(line, soft_wrap=True)


def ended(summary: Summary, path: Path, command: str) -> None:
    """Say that a run stopped early and how to resume; raises the exit code."""
    import typer

    if summary.interrupted or summary.stopped is not None:
        _under_way(path)
    command = carrying(command)
    if summary.interrupted:
        err.print(f"interrupted; finished work is kept. Resume: {escape(command)}", soft_wrap=True)
        raise typer.Exit(130)
    if summary.stopped is not None:
        told(err, "stopped: ", "red", str(summary.stopped))
        err.print(f"finished work is kept. Resume: {escape(command)}", soft_wrap=True)
        raise typer.Exit(1)


def _under_way(path: Path) -> None:
    """Say which batches go on without us."""
    from convbench.engine.submitted import open_batches

    if found := open_batches(path):
        calls, name = sum(len(sent.calls) for sent in found), shown(path)
        note(
            f"{len(found)} batch{'' if len(found) == 1 else 'es'} of {calls:,} calls "
            f"{'is' if len(found) == 1 else 'are'} still at the provider: convbench status {name} "
            f"shows their progress, convbench cancel {name} ends them; a resume picks them up"
        )


@contextmanager
def spending(options: Any) -> Iterator[Any]:
    """Say what was spent when a command of these options ends, however it ends."""
    from convbench.engine.spending import spending as line

    try:
        yield options
    finally:
        spent(options.calls.ledger)
        if found := line(options.calls.ledger):
            told(err, "spent: ", "bold", found)


def say_had(built: Built) -> None:
    """Print how many conversations a run has and how many failed, and why."""
    before = f" ({built.kept} before, {built.jobs.done} now)" if built.kept else ""
    fact("conversations", f"{built.had} complete{before}, {built.lost} failed")
    for message, count in built.failures.most_common(3):
        note(f"{count} failed: {message}")


def say_failures(judged: Judged) -> None:
    """Say of how many conversations a judge has no score, and why."""
    for message, count in judged.failures.most_common(2):
        note(f"{judged.name}: {count} without a score: {message}")
    if judged.unsupported:
        note(f"{judged.name}: {judged.unsupported} without a score: their task is unsupported")


def say_means(panel: Panel) -> None:
    """Print mean scores, one row a judge; judges of other metrics have a table of their own, and
    what does not fit beside stands below."""
    alike: dict[frozenset[str], list[JudgeMeans]] = {}
    for judge in panel.judges:
        alike.setdefault(frozenset(judge.means), []).append(judge)
    for judges in alike.values():
        _say_means(list(judges[0].means), judges)


def _say_means(metrics: Sequence[str], judges: Sequence[JudgeMeans]) -> None:
    from convbench.report.document import Cell, Column, Table
    from convbench.report.terminal import tables
    from convbench.store.columns import METRICS

    short = [SHORT.get(name, name) if name in METRICS else name for name in metrics]
    columns = (
        Column("judge", "judge", numeric=False),
        *(Column(head, head) for head in ("scored", "failed")),
        *map(Column, metrics, short),
        Column("reward", "reward"),
    )
    rows = []
    for judge in judges:
        scores = [f"{judge.means[m]:.2f}" for m in metrics]
        reward = "-" if judge.reward is None else f"{judge.reward.mean:.3f}"
        row = (printable(judge.judge), str(judge.scored), str(judge.failed), *scores, reward)
        rows.append(tuple(map(Cell, row)))
    width = out.width if out.is_terminal else WHOLE
    for part in tables(Table("", columns, tuple(rows)), width, plain=False):
        table(part)


SHORT = {
    "reasoning": "reas.", "comprehensiveness": "compr.", "pedagogical": "pedag.",
    "confidence": "conf.",
}  # fmt: skip
"""Heads of the rubric's metrics where there is little room."""


def path_of(path: Path) -> str:
    """Return a path for a program: relative where it lies below here, without a shell's quotes."""
    with suppress(ValueError):
        path = path.resolve().relative_to(Path.cwd())
    return str(path)


def shown(path: Path) -> str:
    """Return a path as a user would type it: relative where it lies below here, quoted where a
    shell needs it."""
    return shlex.quote(path_of(path))


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
        model = "" if call.model == SCRIPT else f" · {call.model}"
        say_messages(call.speaker, call.messages, f" · step {call.step}{model}")
    out.print()
    say_estimate(preview)


def say_messages(speaker: str, messages: Sequence[Message], more: str = "") -> None:
    """Print what a speaker or a judge is sent."""
    from convbench.schema import text_of

    out.print()
    out.rule(f"[bold]{escape(printable(speaker))}[/]{escape(printable(more))}", align="left")
    for message in messages:
        out.print(f"[cyan]{message['role']}[/]")
        out.print(Text(printable(text_of(message["content"]))), soft_wrap=True)


def say_reply_schema(schema: Mapping[str, Any], how: Structured) -> None:
    """Print the schema that a judge's reply is asked for by, and how it goes along."""
    out.print()
    way = "a tool that it must call" if how == "tool" else "response_format"
    out.print(f"[cyan]schema of the reply[/] ({way}; a model that takes none answers in text)")
    out.print(Text(printable(json.dumps(schema, ensure_ascii=False))), soft_wrap=True)


def say_estimate(preview: Preview) -> None:
    """Print calls, tokens and dollars of the whole run."""
    from rich.table import Table

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
