"""`convbench build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from convbench.cli.main import app
from convbench.cli.options import (
    MODELS,
    AllowCalls,
    ApiBase,
    Budget,
    BudgetTokens,
    Concurrency,
    DryRun,
    Plugin,
    Quiet,
    Set,
    Specs,
    Timeout,
    VllmPython,
)


@app.command(
    epilog="Examples:\n\n"
    "  convbench build arc --mode thinking --model openai/gpt-4o-mini\n\n"
    "  convbench build arc --model hosted_vllm/llama --api-base http://localhost:8000/v1\n\n"
    "  convbench build arc --tasks 50 --samples 1 --dry-run\n\n"
    "  convbench build --run runs/latest        (resume)"
)
def build(
    task: Annotated[
        str | None, typer.Argument(help="Task: a name from `convbench list tasks`, or a file.")
    ] = None,
    mode: Annotated[
        Literal["thinking", "standard"] | None,
        typer.Option(help="Whether the policy reasons in <thinking> tags."),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Protocol; without it the task's own.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(metavar="N|all", help="Questions drawn (the task's own: 500).")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Conversations a question (3).")
    ] = None,
    temperatures: Annotated[
        str | None,
        typer.Option(metavar="T,T,…", help="One value, or one a sample (0.3,0.7,1.0)."),
    ] = None,
    turns: Annotated[
        int | None, typer.Option(min=1, help="Policy turns; the protocol says how many it has.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Limit of one reply in tokens (512).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn (0).")] = None,
    split: Annotated[
        Literal["train", "validation", "test", "all"] | None,
        typer.Option(help="Which split to build (all)."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the run lies; one that exists is resumed."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="The policy: an alias, provider/name, hosted_vllm/NAME, vllm:HF_ID, "
            "local:PATH or scripted:policy.",
            rich_help_panel=MODELS,
        ),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Model of the other speaker, where the protocol asks for one.",
            rich_help_panel=MODELS,
        ),
    ] = None,
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
    """Have the conversations: draw questions, let the policy answer them over several turns."""
    from convbench.catalog.options import SpecOptions
    from convbench.cli.say import say_build, spending
    from convbench.commands.build import build as command
    from convbench.rollout.calls import CallOptions
    from convbench.rollout.fill import BuildOptions
    from convbench.rollout.manifest import Shape

    with spending() as ledger:
        result = command(
            BuildOptions(
                task=task,
                protocol=protocol,
                tasks=_count(tasks),
                shape=Shape(mode, turns, samples, _floats(temperatures), max_tokens, seed, split),
                model=model,
                teacher=teacher,
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
        say_build(result)


def _count(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return text  # type: ignore[return-value]
    if not text.isdigit() or int(text) < 1:
        raise typer.BadParameter(
            f"found {text!r}; expected a number of at least 1, or all", param_hint="--tasks"
        )
    return int(text)


def _floats(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"found {text!r}; expected numbers, e.g. 0.3,0.7,1.0", param_hint="--temperatures"
        ) from None
