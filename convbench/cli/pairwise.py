"""What `convbench judge --pairwise` prints."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from convbench.cli.answers.judged import Duels
from convbench.cli.carried import carrying
from convbench.cli.console import err, out
from convbench.cli.say import (
    ended,
    fact,
    next_command,
    note,
    of_run,
    say_failures,
    shown,
    table,
)
from convbench.options.judge import JudgeOptions
from convbench.printable import printable

if TYPE_CHECKING:
    from convbench.judge.all import JudgeResult
    from convbench.judge.compare import Compared

EVALS = "evals"
"""Folder of a run that holds its evaluations."""
HEADS = ("policies", "win rate", "95%", "wins", "ties", "losses", "flips", "groups")


def answer_duels(one: Compared) -> Duels:
    """Return what comparing two policies came to."""
    found, sure = one.wins, one.decision
    ends = (found.rate.interval if found else None) or (None, None)
    return Duels(
        judge=one.judged.name, first=one.names[0], second=one.names[1],
        win_rate=found.rate.mean if found else None,
        low=sure.low if sure else ends[0], high=sure.high if sure else ends[1],
        wins=found.wins if found else 0, ties=found.ties if found else 0,
        losses=found.losses if found else 0, flips=found.flips.mean if found else None,
        decided=None if sure is None else sure.decided != 0, spared=one.spared,
    )  # fmt: skip


def say_compared(result: JudgeResult, options: JudgeOptions) -> None:
    """Print win rates, what was decided, and what went wrong; an exit code where too many orders
    have no preference."""
    for home in dict.fromkeys(shown(one.home.path) for one in result.compared):
        fact("kept in", f"{home} (comparisons.jsonl)")
    out.print()
    table(_rates(result.compared))
    for one in result.compared:
        _say_couples(one)
    typed = shlex.join(["--pairwise", *(options.pairwise or ())])
    typed += " --until-decided" * options.until_decided + " --batch" * options.calls.batch
    run = f" --run {shown(options.run)}" if options.run else ""
    for one in result.compared:
        asked = f"--judge {shlex.quote(one.judged.name)}"
        again = carrying(f"convbench judge {typed} {asked}{run}")
        say_failures(one.judged)
        ended(one.judged.jobs, one.home.path, again)
        if one.judged.failed:
            err.print(f"try the failed ones again: {escape(again)}", soft_wrap=True)
    fails = options.calls.fails
    if any(fails(one.failed, one.failed + one.jobs.done) for one in result.judged):
        raise typer.Exit(1)
    next_command(f"convbench report{_reported(result.compared, options)} --pairwise")


def _reported(compared: Sequence[Compared], options: JudgeOptions) -> str:
    """Return the runs whose report holds all that were compared (those of evaluations hold them),
    and the options without which it would refuse them."""
    from convbench.errors import RunError
    from convbench.judge.duels import side
    from convbench.report.sections import NotComparable, sections
    from convbench.store import Run

    runs = [side(name, options.run).path for one in compared for name in one.names]
    above = (run.parents[1] if run.parent.name == EVALS else run for run in map(Path.resolve, runs))
    roots = list(dict.fromkeys(above))
    if len(roots) == 1:
        return of_run(roots[0], "")
    named = "".join(f" {shown(one)}" for one in roots)
    opened = [Run.open(one) for one in roots]
    for split, option in (("test", ""), ("all", " --split all")):
        try:
            sections(opened, split)
        except NotComparable:
            return f"{named}{option} --allow-incomparable"
        except RunError:  # a run without conversations of this split
            continue
        return f"{named}{option}"
    return named


def _rates(compared: list[Compared]) -> Table:
    rows = Table(box=None, pad_edge=False, caption_justify="left")
    for head in HEADS:
        rows.add_column(head, justify="left" if head == "policies" else "right")
    for one in compared:
        found, sure = one.wins, one.decision
        name = Text(printable(f"{one.names[0]} over {one.names[1]}"))
        if found is None:
            rows.add_row(name, *["-"] * (len(HEADS) - 1))
            continue
        ends = (sure.low, sure.high) if sure else found.rate.interval
        mean = sure.mean if sure else found.rate.mean
        interval = "-" if ends is None else f"[{max(ends[0], 0):.3f}, {min(ends[1], 1):.3f}]"
        rows.add_row(
            name, f"{mean:.3f}", interval, str(found.wins), str(found.ties), str(found.losses),
            f"{100 * found.flips.mean:.0f}%", str(found.rate.groups),
        )  # fmt: skip
    rows.caption = (
        "A tie is half a win; both orders count. Flips: duels that the order decided. 95%: "
        "clustered by group; until decided: at all times at once, over groups."
    )
    return rows


def _say_couples(one: Compared) -> None:
    """Say what was decided and what could not be coupled."""
    names, sure = f"{one.names[0]} over {one.names[1]}, {one.judged.name}", one.decision
    if sure is not None:
        won = {1: f"{one.names[0]} wins", -1: f"{one.names[1]} wins", 0: "undecided"}[sure.decided]
        spared = f", {one.spared:,} orders not asked" if one.spared else ""
        out.print(
            f"{escape(names)}: {escape(won)} after {sure.groups} of {one.groups} groups{spared}"
        )
    left = {
        "about a question and sample that only one of them has": one.couples.alone,
        "in couples where one conversation failed": 2 * one.couples.failed,
        "whose question differs between the runs": 2 * one.couples.apart,
    }
    for what, count in left.items():
        if count:
            note(f"{escape(names)}: {count} conversations not compared, {what}")
