"""`convbench train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convbench.cli.main import app
from convbench.cli.options import DryRun, Plugin, RunDir, Set, Specs


@app.command(
    epilog="Examples:\n\n"
    "  convbench train swift\n\n"
    "  convbench train refit --judge gpt-4o --launch zero2\n\n"
    "  convbench train swift --set fit.learning_rate=1e-5 --set lora.r=16\n\n"
    "  convbench train swift --dry-run\n\n"
    "  convbench train swift --rounds 2"
)
def train(
    recipe: Annotated[
        str, typer.Argument(help="Recipe: a name from `convbench list recipes`, or a file.")
    ],
    run: RunDir = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model to start from; without it the policy that had the conversations."),
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="Whose verdicts are the reward, where several judged.")
    ] = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Where the checkpoint goes; without it into the run."
        ),
    ] = None,
    launch: Annotated[
        str | None, typer.Option(help="How it is started: none, ddp, zero0, zero2, zero3.")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Train, log again with the new policy, judge, train on; N times, each round "
            "evaluated.",
        ),
    ] = None,
    specs: Specs = None,
    set_: Set = None,
    plugin: Plugin = None,
    dry_run: DryRun = False,
) -> None:
    """Train a policy on the judged conversations of a run."""
    from convbench.cli.say_train import say_rounds, say_seal, say_train
    from convbench.commands.specs import SpecOptions
    from convbench.commands.train import TrainOptions
    from convbench.commands.train import train as command

    options = SpecOptions(tuple(specs or ()), tuple(set_ or ()), tuple(plugin or ()))
    if rounds is not None:
        from convbench.commands.rounds import RoundsOptions
        from convbench.commands.rounds import rounds as loop

        _only_with_one_round(model=model, out=out_dir, launch=launch, dry_run=dry_run or None)
        asked = RoundsOptions(recipe, rounds, run, judge, specs=options)
        if Path(recipe).stem == "seal":
            from convbench.commands.seal import seal

            say_seal(seal(asked))
        else:
            say_rounds(loop(asked))
        return
    say_train(
        command(
            TrainOptions(
                recipe=recipe,
                run=run,
                model=model,
                judge=judge,
                out=out_dir,
                launch=launch,
                dry_run=dry_run,
                specs=options,
            )
        )
    )


def _only_with_one_round(**given: object) -> None:
    """Refuse options that mean nothing over several rounds."""
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(
                "goes with a single training; leave it out, or leave out --rounds",
                param_hint=f"--{name.replace('_', '-')}",
            )
