"""`convbench judge`."""

from __future__ import annotations

from convbench.cli.command import command
from convbench.options.judge import JudgeOptions


@command("judge", JudgeOptions)
def judge(options: JudgeOptions) -> None:
    """Score a run."""
    from convbench.cli.say_judge import say_judge
    from convbench.commands.judge import judge as command

    say_judge(command(options))
