"""`convbench show`: print one spec with its prompts, or one conversation with its verdicts."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import (
    USUAL_JUDGE,
    out,
    print_fact,
    print_messages,
    print_preview,
    print_reply_schema,
    print_table,
    shell_path,
)
from convbench.options.declare import Opt
from convbench.options.shared import MOST_EACH, RunDirs, RunSettings, SpecOptions
from convbench.util.printable import make_printable
from convbench.util.words import Mode

if TYPE_CHECKING:
    from convbench.judges.show import ConversationVerdicts, ResolvedSpec
    from convbench.schema import ToolRound, Verdict

WIDEST = 100
"""Largest width of text on a wide terminal, in columns."""
OFFLINE = "--model scripted:policy --dry-run"
"""A build that needs no key and no weights, and sends nothing."""


@dataclass(frozen=True)
class ShowOptions:
    """Show one spec, with its prompts rendered on a sample where it has any, or one
    conversation."""

    EXAMPLES: ClassVar = (
        "convbench show arc --mode thinking",
        "convbench show judges/rubric",
        "convbench show 3f9a0c12",
    )

    name: Annotated[
        str,
        Opt(
            "A task, KIND/NAME of any spec or model, or (the start of) a conversation_id.",
            argument=True,
            names="specs",
        ),
    ]
    mode: Annotated[Mode | None, Opt("Mode of the prompts.")] = None
    protocol: Annotated[
        str | None, Opt("Protocol; without it the task's own.", names="protocols")
    ] = None
    turns: Annotated[int | None, Opt("Policy turns.", least=1, most=MOST_EACH)] = None
    runs: RunDirs = ()
    specs: SpecOptions = SpecOptions()


class ShowAnswer(Answer):
    """`show`: a spec with its prompts, or a conversation with its verdicts."""

    kind: str
    """What it is: task, protocol, judge, recipe, experiment, launch, model or conversation."""
    name: str
    """Its name, or its id."""
    value: dict[str, Any]
    """The resolved spec, or the record."""
    messages: list[dict[str, Any]] = Field(default_factory=list)
    """Prompts on a sample, in order."""
    reply_schema: dict[str, Any] | None = None
    """For a judge: the schema of the reply, for models that take one."""
    verdicts: list[dict[str, Any]] = Field(default_factory=list)
    """Verdicts on a conversation."""


def run(options: ShowOptions, context: RunContext) -> ShowAnswer:
    """Return the conversation whose id begins so, else the spec of this name; add the next
    commands.

    Prompts are rendered on a sample where the spec has any. Raises ConvbenchError subclasses if
    there is neither.
    """
    from convbench.judges.show import show_conversation, show_spec

    folders = options.specs.folders
    conversation = show_conversation(options.name, options.runs, folders)
    if conversation is not None:
        path = shell_path(conversation.run.path)
        context.add_next(
            f"convbench view {path}        (the same in the browser, with the exact prompts)"
        )
        return ShowAnswer(
            kind="conversation",
            name=conversation.conversation.conversation_id,
            value=conversation.conversation.model_dump(mode="json"),
            verdicts=[verdict.model_dump(mode="json") for verdict in conversation.verdicts],
        ).with_source(conversation)
    shape = RunSettings(mode=options.mode, turns=options.turns)
    spec = show_spec(options.name, options.specs, shape, options.protocol)
    if spec.preview is None and not spec.messages and spec.problem:
        context.add_note(f"no sample to render: {spec.problem}")
    context.add_next(*_next_lines(spec))
    calls = spec.preview.calls if spec.preview is not None else ()
    prompts = [message for call in calls for message in call.messages]
    return ShowAnswer(
        kind=_kind_word(spec),
        name=spec.name,
        value=spec.value,
        messages=[dict(message) for message in (*prompts, *spec.messages)],
        reply_schema=spec.reply_schema,
    ).with_source(spec)


def _kind_word(spec: ResolvedSpec) -> str:
    return spec.kind if spec.kind == "launch" else spec.kind.removesuffix("s")


def _next_lines(spec: ResolvedSpec) -> tuple[str, ...]:
    """Return the commands that use a spec of this kind."""
    manifest, file = spec.manifest, Path(spec.file)
    by_name = spec.kind == "models" or file.parent.name == spec.kind
    name = shlex.quote(spec.name) if by_name else shell_path(file)
    if spec.kind == "tasks" and manifest is not None:
        return (f"convbench build {name} --mode {manifest.mode} {OFFLINE}",)
    if spec.kind == "protocols" and manifest is not None:
        return (f"convbench build {manifest.task.name} --protocol {name} {OFFLINE}",)
    asks = f"@{USUAL_JUDGE}" if spec.messages and "model" not in spec.value else ""
    pairs = " --pairwise base all" if spec.value.get("per") == "pair" else ""
    ways = {
        "judges": f"convbench judge{pairs} --judge {name}{asks} --dry-run",
        "recipes": f"convbench train {name} --dry-run",
        "experiments": f"convbench experiment {name} --dry-run",
        "models": f"convbench build demo --model {name} --dry-run",
    }
    return (ways[spec.kind],) if spec.kind in ways else ()


def show(answer: ShowAnswer) -> None:
    """Print the conversation or the spec."""
    if answer.kind == "conversation":
        print_conversation(answer._source)
    else:
        _print_spec(answer._source)


def _print_spec(spec: ResolvedSpec) -> None:
    """Print a resolved spec, then its prompts on a sample."""
    print_fact(_kind_word(spec), f"{spec.name}: {spec.title}")
    print_fact("file", shell_path(Path(spec.file)))
    manifest = spec.manifest
    if manifest is not None:
        protocol = manifest.protocol
        if spec.kind == "tasks":
            print_fact("protocol", f"{protocol.name}: {protocol.title}")
        else:
            print_fact("questions of", f"{manifest.task.name}: {manifest.task.title}")
        modes = ", ".join(protocol.modes)
        print_fact("mode", f"{manifest.mode} (of {modes}), {manifest.turns} policy turns")
    out.print()
    out.print(escape(make_printable(spec.yaml)), soft_wrap=True)
    if spec.preview is not None:
        print_preview(spec.preview)
    elif spec.messages:
        print_messages("judge", spec.messages)
        if spec.reply_schema is not None:
            print_reply_schema(spec.reply_schema)


READ = ("answer", "gives_answer")
"""In a verdict's details: what a judge of unread answers read."""


def print_conversation(shown: ConversationVerdicts) -> None:
    """Print one conversation with the gold answer, its turns and its verdicts."""
    from convbench.answers.grade import grade_conversation
    from convbench.answers.tags import leaves_open
    from convbench.schema import text_of
    from convbench.views import sent_temperature

    c, m = shown.conversation, shown.run.manifest
    graded = grade_conversation(m.protocol, c, shown.example)
    print_fact("conversation", c.conversation_id)
    print_fact("run", shell_path(shown.run.path))
    policy = m.policy_member.model
    sent = sent_temperature(m.protocol, c)
    heat = "not sent" if sent is None else f"{sent:g}"
    print_fact("what", f"{m.task.name} · {m.protocol.name} · {m.mode} · {policy} · T {heat}")
    print_fact("question", f"{c.example_id} ({shown.example.split}), sample {c.sample}")
    if graded.answer is not None or shown.example.answer is not None:  # else nothing is right
        result = {True: "correct", False: "wrong", None: "not graded"}[graded.correct]
        answer = graded.answer or "unparsed"
        print_fact("answer", f"{answer}, gold {shown.example.answer or '-'}: {result}")
    if c.failure is not None:
        print_fact("failed", c.failure.message)
    if c.flags:
        print_fact("flags", ", ".join(c.flags))
    earlier: list[str] = []
    for number, turn in enumerate(c.turns):
        cut = " · cut by max_tokens" if turn.finish_reason == "length" else ""
        _print_head(turn.speaker, f" · {number} · {turn.step}{cut}")
        if turn.reasoning is not None and turn.reasoning.text.strip():
            _print_text(Text(make_printable(turn.reasoning.text.strip()), style="dim"))
        for tool_round in turn.rounds:
            _print_round(tool_round)
        words = make_printable(text_of(turn.content))
        if turn.speaker == m.protocol.policy:
            _print_text(_dim_thinking(words, leaves_open(earlier)))
            earlier.append(words)
        else:
            _print_text(Text(words))
    for verdict in shown.verdicts:
        _print_verdict(verdict)


def _print_round(tool_round: ToolRound) -> None:
    """Print a round of tool calls with their results."""
    if tool_round.reasoning is not None and tool_round.reasoning.text.strip():
        _print_text(Text(make_printable(tool_round.reasoning.text.strip()), style="dim"))
    if tool_round.content.strip():
        _print_text(Text(make_printable(tool_round.content.strip())))
    results = {result.id: result for result in tool_round.results}
    for call in tool_round.calls:
        _print_text(
            Text.assemble(
                (f"calls {make_printable(call.name)}: ", "bold"), make_printable(call.arguments)
            )
        )
        result = results.get(call.id)
        head = "error: " if result is not None and result.error else "result: "
        text = "(none)" if result is None else result.content
        _print_text(Text.assemble((head, "bold"), make_printable(text)))


def _print_verdict(verdict: Verdict) -> None:
    """Print a verdict: each score on a line, with the judge's justification."""
    if verdict.failure is not None or verdict.reward is None:
        _print_head(f"judge {verdict.judge}", " · no score")
        read = {name: verdict.details[name] for name in READ if name in verdict.details}
        why = ", ".join(f"{name}: {value}" for name, value in read.items()) or "no reward"
        _print_text(Text(make_printable(verdict.failure.message if verdict.failure else why)))
        return
    _print_head(f"judge {verdict.judge}", f" · reward {verdict.reward:.3f}")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True, justify="right")
    rows.add_column(overflow="fold")
    for name in dict.fromkeys((*verdict.scores, *verdict.justifications)):
        score = f"{verdict.scores[name]:g}" if name in verdict.scores else "-"
        why = " ".join(make_printable(verdict.justifications.get(name, "")).split())
        rows.add_row(Text(make_printable(name)), score, Text(why))
    print_table(rows, WIDEST)


def _print_head(bold: str, rest: str) -> None:
    """Print the head of a turn: a rule on a terminal, a short line for a program."""
    out.print()
    if out.is_terminal:
        text = Text.assemble((make_printable(bold), "bold"), make_printable(rest))
        out.print(Rule(text, align="left"), width=min(out.width, WIDEST))
    else:
        out.print(f"── {make_printable(bold)}{make_printable(rest)}", soft_wrap=True, markup=False)


def _dim_thinking(words: str, carried: bool) -> Text:
    """Return the text of a policy with its thinking dimmed."""
    from convbench.answers.tags import split_segments

    text = Text(words)
    for thought, start, stop in split_segments(words, carried):
        if thought:
            text.stylize("dim", start, stop)
    return text


def _print_text(text: Text) -> None:
    """Print a text at a readable width on a terminal, unbroken for a program."""
    if out.is_terminal:
        out.print(text, width=min(out.width, WIDEST))
    else:
        out.print(text, soft_wrap=True)


show_command = Command(run, show)
