"""`convbench gold`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convbench.cli.answers.measured import GoldAnswer
from convbench.cli.build import to_judge
from convbench.cli.command import command
from convbench.cli.envelope import give
from convbench.cli.say import fact, next_command, of_run, path_of, shown
from convbench.options.gold import GoldOptions
from convbench.options.shared import SpecOptions

if TYPE_CHECKING:
    from convbench.commands.gold import GoldResult


@command("gold", GoldOptions, GoldAnswer)
def gold(options: GoldOptions) -> None:
    """Draw, export, import, or say how far people are."""
    from convbench.commands.gold import gold

    result = gold(options)
    give(answer_gold(result))
    say_gold(result)


def answer_gold(result: GoldResult) -> GoldAnswer:
    """Return what was done, and how far the queue is."""
    found = result.progress
    return GoldAnswer(
        run=path_of(result.run.path),
        drawn=None if result.drawn is None else result.drawn.policies,
        by=None if result.drawn is None else result.drawn.draw.by,
        file=None if result.file is None else path_of(result.file),
        labels=result.imported if result.exported is None else result.exported,
        queue=found["drawn"], done=found["done"], skipped=found["skipped"],
        raters={one["rater"]: one["scored"] for one in found["raters"]},
        agreement={row["judge"]: row["alpha"] for row in found["agreement"]},
    )  # fmt: skip


def say_gold(result: GoldResult) -> None:
    """Print what was done, how far the queue is, and what to type next."""
    run, of = result.run.path, of_run(result.run.path, "")
    if result.drawn is not None:
        draw = result.drawn.draw
        chances = sorted(one.chance for one in draw.drawn)
        even = f"{chances[0]:.3g}"
        span = even if chances[0] == chances[-1] else f"{even} to {chances[-1]:.3g}"
        by = ", ".join(f"{n} of {name}" for name, n in result.drawn.policies.items())
        fact("drawn", f"{len(draw.drawn)} conversations ({by}), {draw.by}, each with probability "
             f"{span}")  # fmt: skip
        if result.drawn.known:
            fact("labelled", f"{result.drawn.known} of them before")
    if result.exported is not None and result.file is not None:
        fact("written", f"{result.exported} conversations to {shown(result.file)}")
    if result.imported is not None:
        fact("read", f"{result.imported} labels")
    _progress(result)
    if result.exported is not None and result.file is not None:
        next_command(f"convbench gold import {shown(result.file)}{of_run(run)}   once filled in")
    elif result.progress["drawn"] > result.progress["done"]:
        next_command(f"convbench view{of}   then Label", f"convbench report{of} --gold")
    elif result.progress["drawn"]:
        next_command(f"convbench report{of} --gold")
    elif result.run.judge_specs():
        next_command(f"convbench gold{of} --draw 100")
    else:  # a label is drawn and compared by what a judge said
        next_command(to_judge(result.run.manifest, SpecOptions(), of_run(run)))


def _progress(result: GoldResult) -> None:
    found = result.progress
    skipped = f", {found['skipped']} skipped" if found["skipped"] else ""
    fact("queue", f"{found['done']} of {found['drawn']} labelled{skipped}")
    for one in found["raters"]:
        more = f", {one['skipped']} skipped" if one["skipped"] else ""
        fact("rater", f"{one['rater']}: {one['scored']} scored{more}")
    for row in found["agreement"]:
        if row["both"]:
            value = "cannot be told" if row["alpha"] is None else f"alpha {row['alpha']:.2f}"
            fact("agreement", f"{value} on {row['metric']}, {row['both']} labelled by several")
