"""Options of `demo` and `experiment`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import Asking, CallOptions, DryRun, SpecOptions


@dataclass(frozen=True)
class DemoOptions:
    """Watch a tiny policy learn on this machine: build, judge, train, eval, report."""

    EXAMPLES: ClassVar = ("convbench demo",)

    run: Annotated[
        Path, Opt("Where the run goes; one that exists is gone on with.", metavar="DIR")
    ] = Path("runs") / "demo"
    count: Annotated[int, Opt("Questions.", "--tasks", least=20)] = 300
    learners: tuple[str, ...] = ("swift", "star-gate")
    calls: Any = field(default_factory=CallOptions)
    """CallOptions; not asked for on the command line."""


@dataclass(frozen=True)
class ExperimentOptions(Asking):
    """Run a whole table from one file; the same command goes on where it stopped."""

    EXAMPLES: ClassVar = (
        "convbench experiment pocket",
        "convbench experiment paper --dry-run",
        "convbench experiment mine.yaml --set seeds=[0,1,2]",
    )

    name: Annotated[
        str,
        Opt("Experiment: a name from `convbench list experiments`, or a file.", argument=True),
    ]
    root: Annotated[
        Path | None,
        Opt("Folder of its runs; without it runs/experiments/NAME.", "--run", "DIR"),
    ] = None
    dry_run: DryRun = False
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()
