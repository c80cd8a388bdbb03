"""`convbench judge`."""

from __future__ import annotations

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
    Timeout,
    VllmPython,
)


@app.command(
    epilog="Examples:\n\n"
    "  convbench judge --judge claude-opus\n\n"
    "  convbench judge --judge gpt-4o --judge claude-opus --budget 20\n\n"
    "  convbench judge --judge rules\n\n"
    "  convbench judge --judge human:labels.csv\n\n"
    "  convbench judge --judge rubric-section4@gpt-4o --dry-run"
)
def judge(
    judge: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="NAME",
            help="A model (claude-opus, gpt-4o, provider/name), rules, human:FILE, a judge spec, "
            "or SPEC@MODEL; several times for a panel. Without it the task's own.",
        ),
    ] = None,
    run: RunDir = None,
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
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Score every conversation of a run; what is scored already is kept."""
    from convbench.catalog.options import SpecOptions
    from convbench.cli.say import spending
    from convbench.cli.say_judge import say_judge
    from convbench.judge.all import JudgeOptions
    from convbench.judge.all import judge as command
    from convbench.rollout.calls import CallOptions

    with spending() as ledger:
        say_judge(
            command(
                JudgeOptions(
                    judges=tuple(judge or ()),
                    run=run,
                    dry_run=dry_run,
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
