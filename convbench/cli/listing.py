"""`convbench list`: specs and models by kind, and what runs hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from convbench.cli.answers.looks import ListAnswer, RunRow, SpecRow
from convbench.cli.command import command
from convbench.cli.console import out
from convbench.cli.envelope import give
from convbench.cli.say import next_command, note, path_of, shown, table
from convbench.options.look import ListOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.commands.listing import Listing
    from convbench.store.overview import Overview


@command("list", ListOptions, ListAnswer)
def list_(options: ListOptions) -> None:
    """List specs, models, runs."""
    from convbench.commands.listing import listing

    found = listing(options)
    give(answer_list(found))
    say_list(found)


def answer_list(found: Listing) -> ListAnswer:
    """Return what there is."""
    from convbench.commands.listing import newest

    latest = newest()
    specs = {
        kind: [SpecRow(name=one.name, about=one.about, file=one.where) for one in entries]
        for kind, entries in found.specs.items()
    }
    runs = []
    for one in found.runs or ():
        m = one.run.manifest
        runs.append(
            RunRow(
                run=path_of(one.run.path),
                kind=m.kind,
                task=m.task.name,
                mode=m.mode,
                policy=one.policy,
                conversations=one.conversations,
                failed=one.failed,
                judges=list(one.judges),
                evals=one.evals,
                usd=one.usd,
                created=m.created,
                latest=one.run.path.resolve() == latest,
                tags=list(one.label.tags),
                note=one.label.note,
            )
        )
    return ListAnswer(specs=specs, runs=runs)


def say_list(found: Listing) -> None:
    """Print one table a kind, then the runs."""
    alone = len(found.specs) + (found.runs is not None) == 1
    for kind, entries in found.specs.items():
        if not entries and not alone:
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
    for text in found.notes:
        note(text)
    if found.runs is None:
        next_command(
            "convbench show demo", "convbench build demo --model scripted:policy --dry-run"
        )
        return
    if found.runs or alone:
        out.print("[underline]runs[/]")
        say_runs(found.runs, _none(found))
    held = next((one for one in found.runs if one.conversations), None)
    if held is not None:
        name = shown(held.run.path)
        next_command(f"convbench report {name}", f"convbench view {name}")
    elif found.untagged:
        next_command("convbench list runs")
    else:
        next_command("convbench build demo --model scripted:policy")


def _none(found: Listing) -> str:
    """Return what is said where no run is listed."""
    return f"none with this tag, {found.untagged} without it" if found.untagged else "none here"


def say_runs(runs: Sequence[Overview], empty: str = "none here") -> None:
    """Print runs, the newest first: one a line where there is room, else two."""
    from convbench.commands.listing import newest

    if not runs:
        out.print(empty)
        return
    latest = newest()
    lines = [(_run_name(one, latest), *_run_facts(one)) for one in runs]
    rows = Table(box=None, pad_edge=False)
    heads = ("run", *RUN_HEADS)
    wide = sum(max(cell_len(str(c)) for c in col) + 1 for col in zip(heads, *lines, strict=True))
    if out.is_terminal and wide > out.width:
        for line in lines:
            facts = " · ".join(
                f"{head} {cell}" if head in NAMED else cell
                for head, cell in zip(RUN_HEADS, line[1:], strict=True)
                if cell
            )
            out.print(Text(line[0], style="bold"), soft_wrap=True)
            out.print(Padding(Text(facts, style="dim"), (0, 0, 0, 2)))
        return
    for head in heads:
        rows.add_column(head, no_wrap=True, justify="right" if head in COUNTS else "left")
    for line in lines:
        rows.add_row(Text(line[0], style="bold"), *(Text(cell) for cell in line[1:]))
    table(rows)


RUN_HEADS = ("what", "policy", "complete", "failed", "judges", "evals", "cost", "age", "tags")
COUNTS = ("complete", "failed", "evals", "cost", "age")
"""Columns of numbers."""
NAMED = ("complete", "failed", "evals", "tags")
"""Facts that need their head where there is no table."""


def _run_name(one: Overview, latest: Path | None) -> str:
    mark = " (latest)" if one.run.path.resolve() == latest else ""
    return printable(shown(one.run.path)) + mark


def _run_facts(one: Overview) -> tuple[str, ...]:
    m = one.run.manifest
    kind = "" if m.kind == "build" else f"{m.kind} "
    cost = "$?" if one.usd is None else f"${one.usd:,.2f}" if one.usd else "$0"
    cells = (
        f"{kind}{m.task.name} {m.mode}", one.policy, str(one.conversations),
        str(one.failed or ""), " ".join(one.judges), str(one.evals or ""), cost, age(m.created),
        " ".join(one.label.tags),
    )  # fmt: skip
    return tuple(printable(cell) for cell in cells)


def age(created: str) -> str:
    """Return how long ago a UTC time was, in its largest unit."""
    try:
        then = datetime.fromisoformat(created)
    except ValueError:
        return "?"
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = max(0.0, (datetime.now(UTC) - then).total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"
