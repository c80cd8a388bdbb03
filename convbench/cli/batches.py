"""`convbench status`, `cancel`, `merge`: what is under way for a run, and its shards as one."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from convbench.cli.answers.shards import (
    BatchAnswer,
    BatchesAnswer,
    MergeAnswer,
    ShardsAnswer,
)
from convbench.cli.command import command
from convbench.cli.envelope import give
from convbench.cli.say import fact, next_command, note, path_of, shown, table
from convbench.engine.progress import clock
from convbench.options.look import CancelOptions, StatusOptions
from convbench.options.spread import MergeOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.commands.batches import BatchesShown, BatchShown
    from convbench.store import Run

SHARDS_SHOWN = 3
"""Shards of which it is printed why something is left."""
HEADS = ("wave", "model", "state", "calls", "done", "failed", "age", "batch")


@command("status", StatusOptions, BatchesAnswer)
def status(options: StatusOptions) -> None:
    """Show batches."""
    from convbench.commands.batches import status as command

    found = command(options)
    give(answer_batches(found))
    say_status(found)


@command("cancel", CancelOptions, BatchesAnswer)
def cancel(options: CancelOptions) -> None:
    """End batches."""
    from convbench.commands.batches import cancel as command

    found = command(options)
    give(answer_batches(found))
    if not say_cancel(found):
        raise typer.Exit(1)


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


def answer_batches(found: BatchesShown) -> BatchesAnswer:
    """Return a run's batches."""
    rows = []
    for one in found.batches:
        done, failed = _counts(one)
        state = one.state.status if one.state else one.sent.state
        rows.append(
            BatchAnswer(
                batch=one.sent.batch,
                wave=one.sent.wave,
                model=one.sent.model,
                state=state,
                calls=len(one.sent.calls),
                done=done,
                failed=failed,
                problem=one.problem,
            )
        )
    states = found.shards
    shards = states and ShardsAnswer(
        count=states.count, done=states.done, working=sorted(states.working),
        left=dict(states.left),
    )  # fmt: skip
    return BatchesAnswer(run=path_of(found.run.path), batches=rows, shards=shards)


def say_status(found: BatchesShown) -> None:
    """Print a run's batches and shards, and how to go on."""
    name = shown(found.run.path)
    fact("run", name)
    if (states := found.shards) is not None:
        working = f", {len(states.working)} in work or killed" if states.working else ""
        fact("shards", f"{states.done} of {states.count} done{working}")
        for index, why in list(states.left.items())[:SHARDS_SHOWN]:
            note(f"shard {index}: {printable(why)}")
        if len(states.left) > SHARDS_SHOWN:
            note(f"and {len(states.left) - SHARDS_SHOWN} more with something left; --json has all")
        if not found.batches:
            if not states.alive:
                next_command(_resume_shards(found))
            return
    if not found.batches:
        fact("batches", "none")
        return
    rows = Table(box=None, pad_edge=False)
    for head in HEADS:
        rows.add_column(head, justify="left" if head in ("model", "state", "batch") else "right")
    for one in found.batches:
        rows.add_row(*(Text(printable(text)) for text in _row(one)))
    table(rows)
    for one in found.open:
        if one.problem:
            note(f"wave {one.sent.wave}: {one.problem}")
    if found.open:
        cancels = f"convbench cancel {name}   (ends them)"
        next_command(*_resume(found, "waits for them"), cancels)


def say_cancel(found: BatchesShown) -> bool:
    """Print what was ended; return whether all could be."""
    forgotten = [one for one in found.batches if one.sent.ended == "forgotten"]
    if not found.open:
        fact("batches", f"{len(forgotten)} forgotten" if forgotten else "none in progress")
        return True
    for one in found.open:
        state = one.problem or (one.state.status if one.state else "")
        fact(f"wave {one.sent.wave}", f"{len(one.sent.calls):,} calls of {one.sent.model}: {state}")
    if resume := _resume(found, "keeps what was answered, sends the rest"):
        next_command(*resume)
    return not any(one.problem for one in found.open)


def _counts(one: BatchShown) -> tuple[int, int]:
    """Return how many calls were answered, and how many failed."""
    if one.sent.ended is not None:
        counts = one.sent.counts
        return counts.get("answered", 0), counts.get("failed", 0) + counts.get("missing", 0)
    return (one.state.done, one.state.failed) if one.state else (0, 0)


def _row(one: BatchShown) -> tuple[str, ...]:
    sent, state = one.sent, one.state
    done, failed = _counts(one)
    return (
        str(sent.wave), sent.model, state.status if state else sent.state, f"{len(sent.calls):,}",
        f"{done:,}", f"{failed:,}", "" if sent.ended else clock(one.age_s), sent.batch or "",
    )  # fmt: skip


def _resume_shards(found: BatchesShown) -> str:
    """Return the command that goes on with what is left of the shards."""
    from convbench.store.shards import read_plan

    judges = [task.judge for task in read_plan(found.run.path).tasks if task.judge]
    verb = f"judge --judge {shlex.quote(judges[0])}" if judges else "build"
    return f"convbench {verb} --run {shown(found.run.path)}"


def _resume(found: BatchesShown, remark: str) -> tuple[str, ...]:
    """Return the command that goes on with the batches that have no end. The records do not say by
    which names two policies were compared: that command is told in words, and none returned."""
    first = found.open[0]
    mark = first.judge_fingerprint
    judge = "" if mark is None else _judge_option(found.run, mark)
    if first.is_comparison:
        note(
            f"wave {first.sent.wave} compares two policies; what was typed for it goes on with it: "
            f"convbench judge --pairwise A B{judge} --batch"
        )
        return ()
    verb = "build" if mark is None else f"judge{judge}"
    return (f"convbench {verb} --run {shown(found.run.path)} --batch   ({remark})",)


def _judge_option(run: Run, fingerprint: str) -> str:
    """Return the option that names a judge: as its verdicts do, else as its rubric and model."""
    names = [name for name, mark in run.judged_by() if mark == fingerprint]
    spec = run.judge_specs().get(fingerprint)
    if spec is not None and not names:
        names = [f"{spec.name}@{spec.model}" if spec.model else spec.name]
    return f" --judge {shlex.quote(names[0])}" if names else ""
