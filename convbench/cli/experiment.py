"""`convbench experiment`."""

from __future__ import annotations

import shlex
import sys

import typer

from convbench.cli.command import command
from convbench.options.experiment import ExperimentOptions


@command("experiment", ExperimentOptions)
def experiment(options: ExperimentOptions) -> None:
    """Run an experiment."""
    from convbench.cli.say_experiment import say_experiment, say_missing, say_progress
    from convbench.commands.experiment import experiment as command
    from convbench.errors import PreflightError

    try:
        result = command(options, None if options.calls.quiet else say_progress)
    except PreflightError as error:
        say_missing(error.missing)
        raise typer.Exit(1) from None
    say_experiment(result, shlex.join(["convbench", *sys.argv[1:]]))
