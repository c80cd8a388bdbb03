"""Options that several commands share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RUNS = "Where"
SPECS = "Specs"
MODELS = "Models and calls"

RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="Run directory; without it the newest run.",
        rich_help_panel=RUNS,
    ),
]
RunDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--run",
        metavar="DIR",
        help="Run directory, several times for several runs; without it the newest run.",
        rich_help_panel=RUNS,
    ),
]
Specs = Annotated[
    list[Path] | None,
    typer.Option(
        "--specs",
        metavar="DIR",
        help="Folder of your own specs, searched first.",
        rich_help_panel=SPECS,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace one value of a spec, e.g. task.sample.train=0.9; several times for several.",
        rich_help_panel=SPECS,
    ),
]
Plugin = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="Python file whose functions specs may name as FILESTEM:function.",
        rich_help_panel=SPECS,
    ),
]
ApiBase = Annotated[
    str | None,
    typer.Option(
        "--api-base",
        metavar="URL",
        help="Address of the OpenAI-compatible server of the policy (judging: of the judge).",
        rich_help_panel=MODELS,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        min=1,
        help="Most calls in flight (32); shrinks by itself when a provider says it is too many.",
        rich_help_panel=MODELS,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="USD",
        min=0,
        help="Stop before the call that would pass this many dollars.",
        rich_help_panel=MODELS,
    ),
]
BudgetTokens = Annotated[
    int | None,
    typer.Option(
        "--budget-tokens",
        metavar="N",
        min=0,
        help="Stop before the call that would pass this many tokens.",
        rich_help_panel=MODELS,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="Longest that one attempt of a call may take; then it is tried again.",
        rich_help_panel=MODELS,
    ),
]
VllmPython = Annotated[
    Path | None,
    typer.Option(
        "--vllm-python",
        metavar="PATH",
        help="Python of the environment that has vLLM, for vllm:HF_ID.",
        rich_help_panel=MODELS,
    ),
]
AllowCalls = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-calls",
        metavar="MODEL@HOST",
        help="Let a pulled set have this model called there, with your key; several times for "
        "several. Models that you name yourself need no such leave.",
        rich_help_panel=MODELS,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Show what would be sent and what it would cost; send and write nothing."
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress display.")]
