"""`convbench judge`."""

from __future__ import annotations

from convbench.cli.command import command
from convbench.options.judge import JudgeOptions

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@command("judge", JudgeOptions)
def judge(each: list[JudgeOptions]) -> None:
    """Score runs."""
    import typer

    from convbench.cli.say_judge import say_judge
    from convbench.commands.judge import judge as command
    from convbench.store import find_run

    for options in each:
        find_run(options.run)  # so that none is judged where another is not there
    code = 0
    for options in each:
        try:
            say_judge(command(options), options)
        except typer.Exit as ended:
            code = max(code, ended.exit_code)
            if ended.exit_code == INTERRUPTED:
                break
    if code:
        raise typer.Exit(code)
