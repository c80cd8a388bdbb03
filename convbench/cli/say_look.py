"""What `list`, `show` and `doctor` print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from convbench.answers import grade
from convbench.cli.main import out
from convbench.cli.say import fact, next_command, note, say_preview, shown
from convbench.schema import text_of

if TYPE_CHECKING:
    from convbench.commands.doctor import Finding
    from convbench.commands.look import ConversationShown, Entry, TaskShown

MARKS = {"ok": "[green]ok[/]", "missing": "[red]missing[/]", "note": "[yellow]note[/]"}


def say_list(found: dict[str, list[Entry]]) -> None:
    """Print one table a kind."""
    for kind, entries in found.items():
        if not entries and len(found) > 1:
            continue
        table = Table(box=None, pad_edge=False, title_justify="left", show_header=False)
        table.add_column(no_wrap=True, style="bold", overflow="fold")
        table.add_column(overflow="fold")
        for entry in entries:
            table.add_row(escape(entry.name), escape(entry.about))
        out.print(f"[underline]{kind}[/]")
        out.print(table if entries else "none here")
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
    c, m = found.conversation, found.run.manifest
    graded = grade(m.protocol, c, found.example)
    fact("conversation", c.conversation_id)
    fact("run", shown(found.run.path))
    policy = m.cast[m.protocol.policy].model if m.cast else "imported"
    fact("what", f"{m.task.name} · {m.protocol.name} · {m.mode} · {policy} · T {c.temperature:g}")
    fact("question", f"{c.example_id} ({found.example.split}), sample {c.sample}")
    result = {True: "correct", False: "wrong", None: "not graded"}[graded.correct]
    answer = graded.answer or "unparsed"
    fact("answer", f"{answer}, gold {found.example.answer or '-'}: {result}")
    if c.failure is not None:
        fact("failed", c.failure.message)
    if c.flags:
        fact("flags", ", ".join(c.flags))
    for number, turn in enumerate(c.turns):
        cut = " · cut by max_tokens" if turn.finish_reason == "length" else ""
        out.print()
        out.rule(
            f"[bold]{escape(turn.speaker)}[/] · {number} · {escape(turn.step)}{cut}", align="left"
        )
        out.print(escape(text_of(turn.content)))
    for verdict in found.verdicts:
        out.print()
        out.rule(f"judge [bold]{escape(verdict.judge)}[/]", align="left")
        if verdict.failure is not None:
            out.print(escape(verdict.failure.message))
            continue
        scores = ", ".join(f"{name} {value:g}" for name, value in verdict.scores.items())
        out.print(escape(f"reward {verdict.reward:.3f}: {scores}"))
        for name, text in verdict.justifications.items():
            out.print(escape(f"{name}: {text}"))


def say_doctor(findings: list[Finding]) -> bool:
    """Print the findings; return whether all that is needed is there."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = escape(finding.found)
        if finding.fix:
            text += f"\n[dim]→ {escape(finding.fix)}[/]"
        table.add_row(escape(finding.what), MARKS[finding.state], text)
    out.print(table)
    return not any(finding.needed and finding.state == "missing" for finding in findings)
