"""`convbench eval`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from convbench.cli.main import app
from convbench.cli.options import (
    AllowCalls,
    ApiBase,
    Budget,
    BudgetTokens,
    Concurrency,
    Plugin,
    Quiet,
    RunDir,
    Set,
    Specs,
    Timeout,
    VllmPython,
)


@app.command(
    "eval",
    epilog="Examples:\n\n"
    "  convbench eval runs/latest/checkpoints/swift\n\n"
    "  convbench eval openai/gpt-4o-mini --run runs/latest",
)
def evaluate(
    policy: Annotated[
        str, typer.Argument(help="A checkpoint folder, or any model that build takes.")
    ],
    run: RunDir = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the child run; without it the checkpoint's.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="Protocol; without it the recipe's eval protocol, else the run's."),
    ] = None,
    split: Annotated[
        Literal["train", "validation", "test"], typer.Option(help="Which split to evaluate on.")
    ] = "test",
    api_base: ApiBase = None,
    allow_calls: AllowCalls = None,
    concurrency: Concurrency = None,
    budget: Budget = None,
    budget_tokens: BudgetTokens = None,
    timeout: Timeout = 120.0,
    vllm_python: VllmPython = None,
    specs: Specs = None,
    set_: Set = None,
    plugin: Plugin = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate a policy on a run's test questions, with the same teacher and judges."""
    from convbench.catalog.options import SpecOptions
    from convbench.cli.say import spending
    from convbench.cli.say_judge import say_eval
    from convbench.judge.evaluate import EvalOptions
    from convbench.judge.evaluate import evaluate as command
    from convbench.rollout.calls import CallOptions

    with spending() as ledger:
        say_eval(
            command(
                EvalOptions(
                    policy=policy,
                    run=run,
                    name=name,
                    protocol=protocol,
                    split=split,
                    specs=SpecOptions(tuple(specs or ()), tuple(set_ or ()), tuple(plugin or ())),
                    calls=CallOptions(
                        api_base,
                        concurrency,
                        budget,
                        budget_tokens,
                        vllm_python,
                        quiet=quiet,
                        timeout=timeout,
                        allow=tuple(allow_calls or ()),
                        ledger=ledger,
                    ),
                )
            )
        )
