"""`convbench build`."""

from __future__ import annotations

from convbench.cli.command import command
from convbench.options.build import BuildOptions


@command("build", BuildOptions)
def build(options: BuildOptions) -> None:
    """Build or resume a run."""
    from convbench.cli.say import say_build
    from convbench.commands.build import build as command

    say_build(command(options), options)
