"""`convbench eval`."""

from __future__ import annotations

from convbench.cli.command import command
from convbench.options.evaluate import EvalOptions


@command("eval", EvalOptions)
def evaluate(options: EvalOptions) -> None:
    """Evaluate a policy."""
    from convbench.cli.say_judge import say_eval
    from convbench.judge.evaluate import evaluate as command

    say_eval(command(options), options.calls)
