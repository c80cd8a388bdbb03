"""Options of `report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.options.declare import Opt
from convbench.options.shared import Runs
from convbench.util.words import ErrorKind, SplitChoice


@dataclass(frozen=True)
class ReportOptions:
    """Compare policies with their own bases: means with errors, paired differences, counts."""

    EXAMPLES: ClassVar = (
        "convbench report",
        "convbench report runs/arc-a runs/arc-b --paper --format latex",
        "convbench report --judge gpt-4o --se naive",
        "convbench report --plots --out table1",
        "convbench report --baseline ReFit --format csv",
        "convbench report runs/latest --patterns",
        "convbench report runs/experiments/paper",
    )
    ORDER: ClassVar = ("runs", "paper", "kind", "judge", "split", "format", "plots", "patterns")

    runs: Runs = ()
    split: Annotated[SplitChoice, Opt("Split whose conversations are reported.")] = "test"
    judge: Annotated[
        str | None, Opt("Only this judge's scores.", metavar="NAME", names="judges")
    ] = None
    kind: Annotated[
        ErrorKind,
        Opt("Standard errors by group, or by conversation as many papers print them.", "--se"),
    ] = "clustered"
    baseline: Annotated[
        tuple[str, ...],
        Opt(
            "Policy that all are compared with, in place of each one's own base; repeat it for "
            "several.",
            "--baseline",
            "NAME",
        ),
    ] = ()
    paper: Annotated[bool, Opt("Show the papers' printed numbers under ours.")] = False
    patterns: Annotated[
        bool,
        Opt("How the policies talk: clusters of their final replies, diversity; --plots draws."),
    ] = False
    plots: Annotated[bool, Opt("Draw pictures too: PDF, SVG, PNG and one HTML page.")] = False
    allow: Annotated[
        bool,
        Opt(
            "Report runs together though their judges, prompts or questions differ.",
            "--allow-incomparable",
        ),
    ] = False
    format: Annotated[
        Literal["table", "markdown", "latex", "html", "json", "csv"],
        Opt("How the report is written.", typed_only=True),
    ] = "table"
    out: Annotated[
        Path | None,
        Opt("Folder for the files (RUN/reports with --plots).", metavar="DIR", typed_only=True),
    ] = None
