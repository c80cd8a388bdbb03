"""`convbench count`: how many conversations a run has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from convbench.commands._command import Answer, Command, RunContext
from convbench.commands._output import print_fact
from convbench.options.declare import Opt
from convbench.options.shared import RunArgument


@dataclass(frozen=True)
class CountOptions:
    """Count the conversations of a run."""

    run: RunArgument = None
    least: Annotated[int, Opt("Say so where there are fewer.", least=0, most=1000)] = 0


class CountAnswer(Answer):
    """`count`: how many there are."""

    conversations: int
    """Conversations of the run."""


def run(options: CountOptions, context: RunContext) -> CountAnswer:
    """Count them."""
    from convbench.store import find_run

    target = find_run(options.run)
    count = sum(1 for _ in target.conversations())
    if count < options.least:
        context.add_note(f"fewer than {options.least}")
    context.add_next(f"convbench view {target.path}")
    return CountAnswer(conversations=count)


def show(answer: CountAnswer) -> None:
    """Print how many."""
    print_fact("conversations", str(answer.conversations))


count_command = Command(run, show)
