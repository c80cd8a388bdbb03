"""`convbench credit`: give each policy turn of a run an advantage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import out, path_text, print_fact, print_line, quoted, run_option
from convbench.options.declare import Opt
from convbench.options.shared import RunDir

ORDERED = (
    '"select conversation_id, turn_index, advantage, content from turns where advantage is not '
    'null order by advantage"'
)


@dataclass(frozen=True)
class CreditOptions:
    """Give every policy turn of a run its credit: the column `advantage` of `turns`.

    A critic of `train sweet` sees the hidden reference and needs no judge; it may have been trained
    on another run.
    """

    EXAMPLES: ClassVar = (
        "convbench credit runs/latest/checkpoints/sweet",
        'convbench query "select * from turns where advantage is not null order by advantage"',
    )

    source: Annotated[str, Opt("A checkpoint of `train sweet`.", argument=True)]
    run: RunDir = None
    raw: Annotated[
        bool,
        Opt(
            "A critic's log-ratios as they are, equation (3): without taking off what the base's "
            "own words would get in the same place."
        ),
    ] = False


class CreditAnswer(Answer):
    """`credit`: the advantages of policy turns."""

    run: str
    """The run's folder."""
    source: str
    """Source of the credit: `critic:NAME`, `critic-raw:NAME`."""
    turns: int
    """Policy turns with credit."""
    conversations: int
    """Conversations they belong to."""
    least: float
    """Least advantage."""
    mean: float
    """Mean advantage."""
    most: float
    """Largest advantage."""
    left_out: dict[str, int]
    """Number of conversations without credit, by reason."""


def run(options: CreditOptions, context: RunContext) -> CreditAnswer:
    """Credit the turns of a run, written to its `advantages.jsonl`, and return the counts and the
    range.

    Raises ConvbenchError if no turn can be credited.
    """
    from convbench.learn.credit import credit_turns
    from convbench.store import find_run

    target = find_run(options.run)
    credited = credit_turns(target, options.source, raw=options.raw)
    for why, count in credited.left_out.items():
        context.add_note(f"omitted: {count} {why}")
    path = path_text(target.path)
    context.add_next(
        f"convbench query {ORDERED}{run_option(target.path)}", f"convbench view {quoted(path)}"
    )
    least, mean, most = credited.spread
    return CreditAnswer(
        run=path,
        source=credited.source,
        turns=credited.turns,
        conversations=credited.conversations,
        least=least,
        mean=mean,
        most=most,
        left_out=credited.left_out,
    )


def show(answer: CreditAnswer) -> None:
    """Print how many turns have credit, and its range."""
    print_fact("run", quoted(answer.run))
    turns = f"{answer.turns} turns of {answer.conversations} conversations"
    print_fact("credit", f"{turns}, by {answer.source}")
    spread = f"{answer.least:+.4f} to {answer.most:+.4f}, mean {answer.mean:+.4f}"
    print_line(out, "advantage: ", "dim", spread)


credit_command = Command(run, show)
