"""`convbench train`."""

from __future__ import annotations

from convbench.cli.command import command
from convbench.options.train import TrainOptions


@command("train", TrainOptions)
def train(options: TrainOptions) -> None:
    """Train once, or in rounds."""
    from convbench.cli.say_train import say_seal, say_train
    from convbench.commands.train import Rounds
    from convbench.commands.train import train as command

    done = command(options)
    if isinstance(done, Rounds):
        say_seal(done.result, done.table)
    else:
        say_train(done)
