"""`convbench list`, `show`, `doctor`: what there is and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from convbench.cli.command import command
from convbench.cli.console import err, out
from convbench.cli.say import fact, next_command, note, printable, say_preview, shown, table
from convbench.options.look import DoctorOptions, ListOptions, ModelsOptions, ShowOptions

if TYPE_CHECKING:
    from convbench.commands.doctor import Finding
    from convbench.commands.listing import Entry
    from convbench.commands.show import ConversationShown, TaskShown
    from convbench.schema import Verdict

WIDEST = 100
"""Columns that text is set in on a wide terminal."""
MARKS = {"ok": "[green]ok[/]", "missing": "[red]missing[/]", "note": "[yellow]note[/]"}


@command("list", ListOptions)
def list_(options: ListOptions) -> None:
    """List specs, models, runs."""
    from convbench.commands.listing import listing

    say_list(listing(options.what, options.specs))


@command("show", ShowOptions)
def show(options: ShowOptions) -> None:
    """Show a task or a conversation."""
    from convbench.commands.show import show_conversation, show_task

    found = show_conversation(options.name, options.runs, options.specs.folders)
    if found is not None:
        say_conversation(found)
        return
    say_task(show_task(options.name, options.protocol, options.mode, options.turns, options.specs))


@command("models", ModelsOptions)
def models(options: ModelsOptions) -> None:
    """Fetch a model."""
    from convbench.commands.models import models

    found = models(options, lambda text: err.print(text, markup=False))
    fact("model", f"local:{options.name}: {found.note}")
    fact("from", found.source)
    fact("in", shown(found.folder))
    next_command(f"convbench build arc-easy --model local:{options.name} --tasks 20 --dry-run")


@command("doctor", DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Examine this machine."""
    from convbench.commands.doctor import examine

    if not say_doctor(examine()):
        raise typer.Exit(1)


def say_list(found: dict[str, list[Entry]]) -> None:
    """Print one table a kind."""
    for kind, entries in found.items():
        if not entries and len(found) > 1:
            continue
        rows = Table(box=None, pad_edge=False, title_justify="left", show_header=False)
        rows.add_column(no_wrap=True, style="bold", overflow="fold")
        rows.add_column(overflow="fold")
        for entry in entries:
            rows.add_row(Text(printable(entry.name)), Text(printable(entry.about)))
        out.print(f"[underline]{kind}[/]")
        if entries:
            table(rows)
        else:
            out.print("none here")
        out.print()
    next_command("convbench show TASK", "convbench build TASK --dry-run")


def say_task(found: TaskShown) -> None:
    """Print a task resolved, then its prompts on a sample."""
    m = found.manifest
    fact("task", f"{m.task.name}: {m.task.title}")
    fact("protocol", f"{m.protocol.name}: {m.protocol.title}")
    fact("mode", f"{m.mode} (of {', '.join(m.protocol.modes)}), {m.turns} policy turns")
    out.print()
    out.print(escape(found.yaml), soft_wrap=True)
    if found.preview is not None:
        say_preview(found.preview)
    else:
        note(f"no sample to render: {found.problem}")
    next_command(f"convbench build {m.task.name} --mode {m.mode}")


def say_conversation(found: ConversationShown) -> None:
    """Print one conversation with its question's gold, its turns and its verdicts."""
    from convbench.answers import grade, left_open
    from convbench.schema import text_of
    from convbench.views import sent_temperature

    c, m = found.conversation, found.run.manifest
    graded = grade(m.protocol, c, found.example)
    fact("conversation", c.conversation_id)
    fact("run", shown(found.run.path))
    policy = m.cast[m.protocol.policy].model if m.cast else "imported"
    sent = sent_temperature(m.protocol, c)
    heat = "not sent" if sent is None else f"{sent:g}"
    fact("what", f"{m.task.name} · {m.protocol.name} · {m.mode} · {policy} · T {heat}")
    fact("question", f"{c.example_id} ({found.example.split}), sample {c.sample}")
    result = {True: "correct", False: "wrong", None: "not graded"}[graded.correct]
    answer = graded.answer or "unparsed"
    fact("answer", f"{answer}, gold {found.example.answer or '-'}: {result}")
    if c.failure is not None:
        fact("failed", c.failure.message)
    if c.flags:
        fact("flags", ", ".join(c.flags))
    earlier: list[str] = []
    for number, turn in enumerate(c.turns):
        cut = " · cut by max_tokens" if turn.finish_reason == "length" else ""
        _head(turn.speaker, f" · {number} · {turn.step}{cut}")
        if turn.reasoning is not None and turn.reasoning.text.strip():
            _said(Text(printable(turn.reasoning.text.strip()), style="dim"))
        words = printable(text_of(turn.content))
        if turn.speaker == m.protocol.policy:
            _said(_dimmed(words, left_open(earlier)))
            earlier.append(words)
        else:
            _said(Text(words))
    for verdict in found.verdicts:
        _say_verdict(verdict)
    run = shown(found.run.path)
    next_command(f"convbench view {run}        (the same in the browser, with the exact prompts)")


def _say_verdict(verdict: Verdict) -> None:
    """Print a verdict: its scores in a line each, with the judge's words."""
    if verdict.failure is not None or verdict.reward is None:
        _head(f"judge {verdict.judge}", " · no score")
        _said(Text(printable(verdict.failure.message if verdict.failure else "no reward")))
        return
    _head(f"judge {verdict.judge}", f" · reward {verdict.reward:.3f}")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True, justify="right")
    rows.add_column(overflow="fold")
    for name in dict.fromkeys((*verdict.scores, *verdict.justifications)):
        score = f"{verdict.scores[name]:g}" if name in verdict.scores else "-"
        why = " ".join(printable(verdict.justifications.get(name, "")).split())
        rows.add_row(Text(printable(name)), score, Text(why))
    table(rows, WIDEST)


def _head(bold: str, rest: str) -> None:
    """Print a turn's head: a line across a terminal, a short mark where it goes to a program."""
    out.print()
    if out.is_terminal:
        text = Text.assemble((printable(bold), "bold"), printable(rest))
        out.print(Rule(text, align="left"), width=min(out.width, WIDEST))
    else:
        out.print(f"── {printable(bold)}{printable(rest)}", soft_wrap=True, markup=False)


def _dimmed(words: str, carried: bool) -> Text:
    """Return what a policy wrote, its thinking dimmed."""
    from convbench.answers import segments

    text = Text(words)
    for thought, start, stop in segments(words, carried):
        if thought:
            text.stylize("dim", start, stop)
    return text


def _said(text: Text) -> None:
    """Print what somebody wrote: at a width that reads well on a terminal, in whole lines where
    it goes to a program."""
    if out.is_terminal:
        out.print(text, width=min(out.width, WIDEST))
    else:
        out.print(text, soft_wrap=True)


def say_doctor(findings: list[Finding]) -> bool:
    """Print the findings; return whether all that is needed is there."""
    rows = Table(box=None, pad_edge=False, show_header=False)
    rows.add_column(no_wrap=True, style="bold")
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for finding in findings:
        text = escape(finding.found)
        if finding.fix:
            text += f"\n[dim]→ {escape(finding.fix)}[/]"
        rows.add_row(escape(finding.what), MARKS[finding.state], text)
    table(rows)
    return not any(finding.needed and finding.state == "missing" for finding in findings)
