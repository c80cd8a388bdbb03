"""Options of `report` and `patterns`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from convbench.options.declare import Opt
from convbench.options.shared import Runs
from convbench.util.words import ErrorKind, SplitChoice

Reported = Annotated[SplitChoice, Opt("Split whose conversations are reported.")]
Out = Annotated[Path | None, Opt("Folder for the files (RUN/reports with --plots).", metavar="DIR")]
Widest = Annotated[
    Literal["one", "two"],
    Opt(
        "Width of pictures and LaTeX tables: one column of a two-column page (3.35 inches), "
        "or both (7)."
    ),
]
Titled = Annotated[
    bool, Opt("Write a title into each picture, for slides; in a paper the caption has it.")
]


@dataclass(frozen=True)
class ReportOptions:
    """Compare Base and the learners: means with errors, paired differences, counts."""

    EXAMPLES: ClassVar = (
        "convbench report",
        "convbench report runs/arc-a runs/arc-b --paper --format latex",
        "convbench report --judge gpt-4o --se naive",
        "convbench report --plots --out table1",
        "convbench report --against ReFit --format csv",
        "convbench report runs/experiments/paper --against runs/experiments/paper-as-printed",
        "convbench report --gold",
        "convbench report --verdict",
    )
    ORDER: ClassVar = (
        "runs",
        "paper",
        "kind",
        "judge",
        "split",
        "format",
        "plots",
        "gold",
        "verdict",
    )

    runs: Runs = ()
    split: Reported = "test"
    judge: Annotated[
        str | None, Opt("Judge; without it a table for each.", metavar="NAME", names="judges")
    ] = None
    kind: Annotated[
        ErrorKind,
        Opt("Standard errors by group, or by conversation as the paper's.", "--se"),
    ] = "clustered"
    baseline: Annotated[
        str | None,
        Opt("Policy that the others are compared with (Base).", metavar="NAME"),
    ] = None
    against: Annotated[
        tuple[str, ...],
        Opt(
            "Add every policy's paired difference to this one; repeat it for several. With an "
            "experiment's folder also another one's folder: differences to its policies of the "
            "same names.",
            "--against",
            "NAME",
        ),
    ] = ()
    paper: Annotated[bool, Opt("Show the paper's numbers next to ours.")] = False
    plots: Annotated[bool, Opt("Draw pictures too: PDF, SVG, PNG and one HTML page.")] = False
    columns: Widest = "two"
    titles: Titled = False
    pairwise: Annotated[
        bool, Opt("Win rates and strengths from judge --pairwise, in tables of their own.")
    ] = False
    pool: Annotated[
        bool, Opt("Pool methods of the same name from runs that differ in the seed.")
    ] = False
    allow: Annotated[
        bool,
        Opt(
            "Report runs together though their judges, prompts or questions differ.",
            "--allow-incomparable",
        ),
    ] = False
    gold: Annotated[
        bool,
        Opt("What people's labels say about the judge: corrected means and differences."),
    ] = False
    verdict: Annotated[
        bool,
        Opt(
            "Whether each trained policy improved or only pleases the judge: one word, with "
            "the evidence."
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


@dataclass(frozen=True)
class PatternOptions:
    """Compare how policies talk: clusters of their final responses, diversity, telling words."""

    EXAMPLES: ClassVar = (
        "convbench patterns runs/latest runs/latest/evals/swift",
        "convbench patterns runs/latest --out patterns        (with its evaluations)",
    )

    runs: Runs = ()
    """Each run is one policy; a single run, by default the newest, is compared with its
    children."""
    split: Reported = "test"
    columns: Widest = "two"
    titles: Titled = False
    out: Out = None
