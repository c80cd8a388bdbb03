"""Printing that several commands share: results on stdout, notes and progress on stderr."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from convbench.util.printable import make_printable
from convbench.util.terminal import Terminal

if TYPE_CHECKING:
    from convbench.reports.document import Document
    from convbench.reports.document import Table as ReportTable
    from convbench.rollout.build import BuildSummary
    from convbench.rollout.preview import Preview
    from convbench.schema import Message

out = Terminal(highlight=False)
err = Terminal(stderr=True, highlight=False)

INDENT = 15
"""Largest indent of continuation lines, in columns."""
USUAL_JUDGE = "claude-opus"
"""The judge model in next commands if nothing names another."""
EVALS = "evals"
"""Folder of a run that holds its evaluations."""
COUNT = 'convbench query "select count(*) from conversations"'
UNBROKEN_WIDTH = 100_000
"""Width of a table for a program, in which nothing is broken."""


def print_line(console: Console, head: str, style: str, text: str) -> None:
    """Print text after a head: as one line for a program; on a terminal broken between words, never
    inside one.

    Paths and addresses can so be copied. Control characters are replaced by a mark.
    """
    text = make_printable(text)
    if console.is_terminal and cell_len(head + text) > console.width:
        lines = textwrap.wrap(  # a word stands for the head, whose spaces would be dropped
            "x" * len(head) + text,
            console.width,
            subsequent_indent=" " * min(len(head), INDENT),
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(lines)[len(head) :]
    console.print(Text.assemble((head, style), text), soft_wrap=True)


def print_fact(name: str, value: str) -> None:
    """Print one fact of a result on stdout: its name in bold, padded to 15 columns, then the
    value."""
    print_line(out, f"{name:<{INDENT - 1}} ", "bold", value)


def print_table(table: RenderableType, most: int = UNBROKEN_WIDTH) -> None:
    """Print a table: fitted to a terminal, at most `most` columns wide; unbroken for a program."""
    if out.is_terminal:
        out.print(table, width=min(out.width, most))
        return
    wide = Console(width=UNBROKEN_WIDTH, color_system=None)
    with wide.capture() as drawn:
        wide.print(table)
    for line in drawn.get().rstrip("\n").split("\n"):
        out.print(Text(line.rstrip()), soft_wrap=True)


def print_document(document: Document) -> None:
    """Print a report: fitted to a terminal; unbroken for a program."""
    from convbench.reports.write import render_terminal

    console = out if out.is_terminal else Console(width=UNBROKEN_WIDTH, color_system=None)
    for item in render_terminal(document, console):
        print_table(item)


def print_report_table(table: ReportTable) -> None:
    """Print a table and its notes without its caption: fitted to a terminal; unbroken for a
    program."""
    from convbench.reports.write import terminal_table

    width = out.width if out.is_terminal else UNBROKEN_WIDTH
    for part in terminal_table(table, width, marked=False):
        print_table(part)
    for note in table.notes:
        print_table(Text(note, style="dim"))


def print_next(commands: Sequence[tuple[str, str]]) -> None:
    """Print an empty line, then each command as `next: COMMAND   REMARK`, on stdout.

    On a terminal a remark that does not fit gets a line of its own.
    """
    out.print()
    for command, remark in commands:
        fits = not out.is_terminal or cell_len(f"next: {command}   {remark}".rstrip()) <= out.width
        gap = "   " if fits else "\n      "
        line = Text.assemble(("next: ", "dim"), command, (gap + remark, "dim"))
        line.rstrip()
        out.print(line, soft_wrap=True)


def print_conversations(built: BuildSummary) -> None:
    """Print one line with how many conversations a run has and how many failed.

    If some existed before, it tells those and the new ones apart.
    """
    before = (
        f" ({built.already_there} before, {built.jobs.done} now)" if built.already_there else ""
    )
    print_fact("conversations", f"{built.complete} complete{before}, {built.failed} failed")


def path_text(path: Path) -> str:
    """Return a path as text without shell quotes, relative if it is the current folder or below it.

    Links are resolved for a relative one; a path elsewhere is returned as it is.
    """
    with suppress(ValueError):
        path = path.resolve().relative_to(Path.cwd())
    return str(path)


def shell_path(path: Path) -> str:
    """Return `path_text` of a path, quoted if a shell needs it."""
    return shlex.quote(path_text(path))


quoted = shlex.quote
"""Quotes a path in an answer as a user would type it."""


def run_option(path: Path, option: str = "--run ") -> str:
    """Return the option that names a run in a next command, with a leading space: ` --run runs/a`.

    It is empty for the newest run, the default. With `option=""` the path alone follows the space.
    """
    latest = Path("runs") / "latest"
    return "" if latest.resolve() == path.resolve() else f" {option}{shell_path(path)}"


def print_preview(preview: Preview) -> None:
    """Print the exact messages of the first example, then the estimate."""
    from convbench.rollout.calls import SCRIPT

    example = preview.example
    print_fact("example", f"{example.example_id} ({example.split})")
    for call in preview.calls:
        model = "" if call.model == SCRIPT else f" · {call.model}"
        print_messages(call.speaker, call.messages, f" · step {call.step}{model}")
    out.print()
    _print_estimate(preview)


def print_messages(speaker: str, messages: Sequence[Message], more: str = "") -> None:
    """Print the messages that are sent to a speaker or a judge."""
    from convbench.schema import text_of

    out.print()
    out.rule(
        f"[bold]{escape(make_printable(speaker))}[/]{escape(make_printable(more))}", align="left"
    )
    for message in messages:
        out.print(f"[cyan]{message['role']}[/]")
        out.print(Text(make_printable(text_of(message["content"]))), soft_wrap=True)


def print_reply_schema(schema: Mapping[str, Any]) -> None:
    """Print the schema for a judge's reply, and how it is sent to the model."""
    out.print()
    how = "response_format; without support for schemas: plain text"
    out.print(f"[cyan]schema of the reply[/] ({how})")
    out.print(Text(make_printable(json.dumps(schema, ensure_ascii=False))), soft_wrap=True)


def _print_estimate(preview: Preview) -> None:
    """Print the estimate for the run: conversations, calls, tokens and dollars."""
    from rich.table import Table

    estimate = preview.estimate
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_row("conversations", f"{estimate.conversations:,}")
    rows.add_row("calls", f"{estimate.calls:,}")
    rows.add_row("prompt tokens", f"at most about {estimate.prompt_tokens:,}")
    rows.add_row("reply tokens", f"at most {estimate.reply_tokens:,}")
    if estimate.usd is None and not preview.unpriced:
        price = "depends on the model: convbench build … --model NAME --dry-run"
    elif estimate.usd is None:
        price = f"unknown (no price known for {', '.join(preview.unpriced)})"
    else:
        price = f"at most about ${estimate.usd:,.2f}"
    rows.add_row("cost", price)
    print_table(rows)
