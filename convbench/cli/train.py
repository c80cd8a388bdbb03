"""`convbench train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convbench.cli.main import app
from convbench.cli.options import (
    AllowCalls,
    ApiBase,
    Budget,
    BudgetTokens,
    Concurrency,
    DryRun,
    Plugin,
    Quiet,
    RunDir,
    Set,
    Specs,
    VllmPython,
)


@app.command(
    epilog="Examples:\n\n"
    "  convbench train swift\n\n"
    "  convbench train refit --judge gpt-4o --launch zero2\n\n"
    "  convbench train swift --set fit.learning_rate=1e-5 --set lora.r=16\n\n"
    "  convbench train swift --dry-run\n\n"
    "  convbench train step-dpo --set pairing.source=resampled --budget 5\n\n"
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
            "evaluated. Without it the recipe's args.rounds, where it has them (seal).",
        ),
    ] = None,
    specs: Specs = None,
    set_: Set = None,
    plugin: Plugin = None,
    api_base: ApiBase = None,
    allow_calls: AllowCalls = None,
    concurrency: Concurrency = None,
    budget: Budget = None,
    budget_tokens: BudgetTokens = None,
    vllm_python: VllmPython = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train a policy on the judged conversations of a run.

    Models are asked only where a learner samples: --rounds, sweet, step-dpo's new branches.
    """
    from convbench.catalog.options import SpecOptions
    from convbench.cli.say import spending
    from convbench.cli.say_train import say_seal, say_train
    from convbench.commands.train import train_rounds
    from convbench.learn.rounds import RoundsOptions, ready, recipe_of, rounds_of
    from convbench.learn.seal import filtered
    from convbench.learn.start import TrainOptions
    from convbench.learn.start import train as command
    from convbench.rollout.calls import CallOptions

    options = SpecOptions(tuple(specs or ()), tuple(set_ or ()), tuple(plugin or ()))
    allow = tuple(allow_calls or ())
    with spending() as ledger:
        calls = CallOptions(
            api_base,
            concurrency,
            budget,
            budget_tokens,
            vllm_python,
            quiet,
            allow=allow,
            ledger=ledger,
        )
        asked = RoundsOptions(recipe, rounds, run, judge, specs=options, calls=calls)
        found = recipe_of(asked)
        if rounds_of(found) and dry_run:
            ready(asked)
        single = {"model": model, "out": out_dir, "launch": launch, "dry_run": dry_run or None}
        if rounds is not None:
            _only_with_one_round(**single)
        if rounds is not None or (rounds_of(found) and not any(single.values())):
            say_seal(*train_rounds(asked))
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
                    specs=filtered(options, found),
                    calls=calls,
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
