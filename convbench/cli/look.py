"""`convbench show`, `init`, `tag`, `models`, `doctor`: one thing seen whole, specs of one's own."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from convbench.cli.answers.looks import (
    DoctorAnswer,
    FindingAnswer,
    MadeAnswer,
    ModelsAnswer,
    ShowAnswer,
    VerifiedAnswer,
    VerifyAnswer,
)
from convbench.cli.answers.runs import RunAnswer
from convbench.cli.command import command
from convbench.cli.console import err, out
from convbench.cli.envelope import give
from convbench.cli.say import (
    USUAL_JUDGE,
    fact,
    next_command,
    note,
    path_of,
    say_messages,
    say_preview,
    say_reply_schema,
    shown,
    table,
    told,
)
from convbench.options.look import (
    DoctorOptions,
    InitOptions,
    ModelsOptions,
    ShowOptions,
    TagOptions,
    VerifyOptions,
)
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.commands.doctor import Finding
    from convbench.commands.show import ConversationShown, SpecShown
    from convbench.schema import ToolRound, Verdict

WIDEST = 100
"""Columns that text is set in on a wide terminal."""
MARKS = {"ok": "[green]ok[/]", "missing": "[red]missing[/]", "note": "[yellow]note[/]"}


@command("show", ShowOptions, ShowAnswer)
def show(options: ShowOptions) -> None:
    """Show a spec or a conversation."""
    from convbench.commands.show import show_conversation, show_spec

    found = show_conversation(options.name, options.runs, options.specs.folders)
    if found is not None:
        give(answer_conversation(found))
        say_conversation(found)
        return
    spec = show_spec(options)
    give(answer_spec(spec))
    say_spec(spec)


def answer_conversation(found: ConversationShown) -> ShowAnswer:
    """Return a conversation's record with its verdicts."""
    return ShowAnswer(
        kind="conversation", name=found.conversation.conversation_id,
        value=found.conversation.model_dump(mode="json"),
        verdicts=[one.model_dump(mode="json") for one in found.verdicts],
    )  # fmt: skip


def answer_spec(found: SpecShown) -> ShowAnswer:
    """Return a spec with its prompts."""
    calls = found.preview.calls if found.preview is not None else ()
    messages = [dict(one) for call in calls for one in call.messages] + [
        dict(one) for one in found.messages
    ]
    kind = found.kind if found.kind == "launch" else found.kind.removesuffix("s")
    return ShowAnswer(
        kind=kind,
        name=found.name,
        value=found.value,
        messages=messages,
        reply_schema=found.reply_schema,
    )


@command("init", InitOptions, MadeAnswer)
def init(options: InitOptions) -> None:
    """Write a spec to begin with."""
    from convbench.commands.init import init

    made = init(options)
    give(MadeAnswer(kind=made.kind, name=made.name, file=path_of(made.files[-1])))
    for path in made.files:
        fact("written", shown(path))
    next_command(*made.next)


@command("tag", TagOptions, RunAnswer)
def tag(options: TagOptions) -> None:
    """Name a run."""
    from convbench.commands.tag import tag

    run, label = tag(options)
    give(RunAnswer(run=path_of(run.path), tags=list(label.tags), note=label.note))
    fact("run", shown(run.path))
    fact("tags", ", ".join(label.tags) or "none")
    if label.note:
        fact("note", label.note)


@command("models", ModelsOptions, ModelsAnswer)
def models(options: ModelsOptions) -> None:
    """Fetch a model."""
    from convbench.commands.models import models

    found = models(options, lambda text: err.print(text, markup=False))
    name = f"local:{options.name}"
    give(ModelsAnswer(model=name, source=found.source, folder=path_of(found.folder)))
    fact("model", f"{name}: {found.note}")
    fact("from", found.source)
    fact("in", shown(found.folder))
    next_command(f"convbench build demo --model local:{options.name} --tasks 20 --dry-run")


@command("verify", VerifyOptions, VerifyAnswer)
def verify(options: VerifyOptions) -> None:
    """Compute every figure again."""
    from convbench.commands.verify import verify

    with err.status("reading every record again"):
        found = verify(options)
    give(
        VerifyAnswer(
            target=found.target, ok=not found.problems,
            checked=[
                VerifiedAnswer(what=one.what, found=one.found, problems=one.problems)
                for one in found.checked
            ],
        )
    )  # fmt: skip
    for one in found.checked:
        kind, _, place = one.what.partition(" ")
        fact(kind, f"{shown(Path(place))}: {one.found or 'cannot be read'}")
        for text in one.problems:
            told(out, "  wrong: ", "red", text)
    if not found.problems:
        fact(
            "verified", "every file is as it was written, and every figure follows from the records"
        )
        return
    if any("never sealed" in text or "after the last seal" in text for text in found.problems):
        note(
            "records that were never sealed were written by an earlier version, by hand, or by a "
            "command that was cut off; to accept the run as it is: convbench verify RUN --seal"
        )
    raise typer.Exit(1)


@command("doctor", DoctorOptions, DoctorAnswer)
def doctor(options: DoctorOptions) -> None:
    """Examine this machine."""
    from convbench.commands.doctor import examine

    findings = examine()
    give(
        DoctorAnswer(
            findings=[
                FindingAnswer(
                    what=one.what, state=one.state, found=one.found, fix=one.fix, needed=one.needed
                )
                for one in findings
            ]
        )
    )
    if not say_doctor(findings):
        raise typer.Exit(1)


def say_spec(found: SpecShown) -> None:
    """Print a spec resolved, then its prompts on a sample."""
    fact(found.kind if found.kind == "launch" else found.kind[:-1], f"{found.name}: {found.title}")
    fact("file", shown(Path(found.file)))
    m = found.manifest
    if m is not None:
        if found.kind == "tasks":
            fact("protocol", f"{m.protocol.name}: {m.protocol.title}")
        else:
            fact("questions of", f"{m.task.name}: {m.task.title}")
        fact("mode", f"{m.mode} (of {', '.join(m.protocol.modes)}), {m.turns} policy turns")
    out.print()
    out.print(escape(printable(found.yaml)), soft_wrap=True)
    if found.preview is not None:
        say_preview(found.preview)
    elif found.messages:
        say_messages("judge", found.messages)
        if found.reply_schema is not None:
            say_reply_schema(found.reply_schema, "json_schema")
    elif found.problem:
        note(f"no sample to render: {found.problem}")
    next_command(*_after(found))


OFFLINE = "--model scripted:policy --dry-run"
"""A build that needs no key and no weights, and sends nothing."""


def _after(found: SpecShown) -> tuple[str, ...]:
    """Return what uses a spec of this kind."""
    m, file = found.manifest, Path(found.file)
    by_name = found.kind == "models" or file.parent.name == found.kind
    name = shlex.quote(found.name) if by_name else shown(file)
    if found.kind == "tasks" and m is not None:
        return (f"convbench build {name} --mode {m.mode} {OFFLINE}",)
    if found.kind == "protocols" and m is not None:
        return (f"convbench build {m.task.name} --protocol {name} {OFFLINE}",)
    asks = f"@{USUAL_JUDGE}" if found.messages and "model" not in found.value else ""
    pairs = " --pairwise base all" if found.value.get("per") == "pair" else ""
    ways = {
        "judges": f"convbench judge{pairs} --judge {name}{asks} --dry-run",
        "recipes": f"convbench train {name} --dry-run",
        "experiments": f"convbench experiment {name} --dry-run",
        "models": f"convbench build demo --model {name} --dry-run",
    }
    return (ways[found.kind],) if found.kind in ways else ()


def say_conversation(found: ConversationShown) -> None:
    """Print one conversation with its question's gold, its turns and its verdicts."""
    from convbench.answers.grade import grade
    from convbench.answers.tags import left_open
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
    if graded.answer is not None or found.example.answer is not None:  # else nothing is right
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
        for one in turn.rounds:
            _say_round(one)
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


def _say_round(one: ToolRound) -> None:
    """Print what a turn called of tools, and what came of each call."""
    if one.reasoning is not None and one.reasoning.text.strip():
        _said(Text(printable(one.reasoning.text.strip()), style="dim"))
    if one.content.strip():
        _said(Text(printable(one.content.strip())))
    results = {result.id: result for result in one.results}
    for call in one.calls:
        _said(Text.assemble((f"calls {printable(call.name)}: ", "bold"), printable(call.arguments)))
        result = results.get(call.id)
        head = "error: " if result is not None and result.error else "result: "
        said = "(none)" if result is None else result.content
        _said(Text.assemble((head, "bold"), printable(said)))


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
    from convbench.answers.tags import segments

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
