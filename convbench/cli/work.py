"""`convbench work`, `merge`: shards of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from convbench.cli.answers.shards import MergeAnswer, WorkAnswer, WorkerAnswer
from convbench.cli.carried import carrying
from convbench.cli.command import command
from convbench.cli.console import err
from convbench.cli.envelope import give
from convbench.cli.say import fact, next_command, note, of_run, path_of, shown, table, told
from convbench.engine.progress import clock, short
from convbench.options.spread import MergeOptions, WorkOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.commands.work import WorkResult

MOST = 12
"""Shards and workers that are named."""


@command("work", WorkOptions, WorkAnswer)
def work(options: WorkOptions) -> None:
    """Work on shards."""
    from convbench.commands.work import work as command

    result = command(options)
    give(answer_work(result))
    say_work(result)


@command("merge", MergeOptions, MergeAnswer)
def merge(options: MergeOptions) -> None:
    """Join shards."""
    from convbench.commands.merge import merge as command

    result = command(options)
    name = shown(result.run.path)
    give(MergeAnswer(run=name, shards=result.count, records=result.records))
    fact("run", name)
    fact("joined", f"{result.count} shards: " + ", ".join(
        f"{count:,} lines of {file}" for file, count in result.records.items()
        if file.endswith(".jsonl")
    ))  # fmt: skip
    next_command(f"convbench report {name}")


def answer_work(result: WorkResult) -> WorkAnswer:
    """Return how far the shards are, and who is at them."""
    found = result.listed
    return WorkAnswer(
        run=path_of(result.run.path), shards=found.count, done=len(found.done),
        waiting=len(found.waiting), held=sorted(found.held), stopped=dict(found.stopped),
        given_up=list(found.given_up), usd=result.board.account.spent_usd,
        cap_usd=result.board.account.cap_usd,
        workers=[
            WorkerAnswer(
                name=one.name, host=one.host, doing=one.doing, shard=one.shard, done=one.done,
                failed=one.failed, calls=one.calls, rate=one.rate, usd=one.usd,
            )
            for one in result.board.workers
        ],
    )  # fmt: skip


def say_work(result: WorkResult) -> None:
    """Print how far the shards are; an exit code where the worker could not go on."""
    found, worked = result.listed, result.worked
    name = shown(result.run.path)
    fact("run", name)
    parts = [f"{len(found.done)} of {found.count} done"]
    parts += [f"{len(found.held)} in work"] * bool(found.held)
    parts += [f"{len(found.waiting)} waiting"] * bool(found.waiting)
    parts += [f"{len(found.given_up)} given up"] * bool(found.given_up)
    fact("shards", ", ".join(parts))
    for index, why in list(found.stopped.items())[:3]:
        note(f"shard {index} was given back: {why}")
    if found.given_up:
        note(f"shards {named(found.given_up)} lost too many workers in a row; no worker takes them")
    account = result.board.account
    if account.cap_usd is not None or account.spent_usd:
        most = "" if account.cap_usd is None else f" of ${account.cap_usd:g}"
        fact("spent", f"${account.spent_usd:.4f}{most} by shards that were given back")
    if worked is None:
        _say_workers(result)
        next_command(f"convbench work {name}" if found.waiting else f"convbench report {name}")
        return
    fact("this worker", f"{worked.shards} shards, {worked.done} done, {worked.failed} failed")
    if worked.lost:
        note(f"{worked.lost} of its shards were taken over by others meanwhile")
    for trouble in worked.troubles[:3]:
        note(trouble)
    again = carrying(f"convbench work {name}")
    if worked.interrupted:
        err.print(f"interrupted; finished work is kept. Resume: {escape(again)}", soft_wrap=True)
        raise typer.Exit(130)
    if worked.stopped is not None:
        told(err, "stopped: ", "red", str(worked.stopped))
        err.print(f"finished work is kept. Resume: {escape(again)}", soft_wrap=True)
    if worked.stopped is not None or worked.troubles or found.given_up:
        raise typer.Exit(1)
    next_command(f"convbench report{of_run(result.run.path, ' ')}", f"convbench merge {name}")


def _say_workers(result: WorkResult) -> None:
    active = result.board.active
    if not active:
        return
    rows = Table(box=None, pad_edge=False)
    for head in ("worker", "does", "shard", "done", "failed", "a second", "tokens", "time"):
        rows.add_column(head, justify="left" if head in ("worker", "does") else "right")
    for one in active[:MOST]:
        rows.add_row(
            Text(printable(one.name)), Text(printable(one.doing)),
            "-" if one.shard is None else str(one.shard), str(one.done), str(one.failed),
            f"{one.rate:.1f}", short(one.tokens), clock(one.seconds),
        )  # fmt: skip
    table(rows)
    if len(active) > MOST:
        note(f"and {len(active) - MOST} more workers; --json tells all")


def named(found: list[int]) -> str:
    """Return the first few numbers."""
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return ", ".join(map(str, found[:MOST])) + more
