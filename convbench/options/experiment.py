"""Options of `experiment`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import CallOptions, DryRun, ModelCallMixin, SpecOptions


@dataclass(frozen=True)
class ExperimentOptions(ModelCallMixin):
    """Run a whole table from one file; the same command resumes it."""

    EXAMPLES: ClassVar = (
        "convbench experiment pocket",
        "convbench experiment paper --dry-run",
        "convbench experiment mine.yaml --set seeds=[0,1,2]",
        "convbench experiment paper --set per_task.cosql.sets.task.source.file=FOLDER",
        "convbench experiment paper --only arc-thinking-seed0 --only 'mmlu-*/train/swift'",
        "convbench experiment paper --from openbookqa-thinking-seed0",
    )

    name: Annotated[
        str,
        Opt(
            "Experiment: a name from `convbench list experiments`, or a file.",
            argument=True,
            names="experiments",
        ),
    ]
    root: Annotated[
        Path | None,
        Opt("Folder of its runs; without it runs/experiments/NAME.", "--run", "DIR"),
    ] = None
    only: Annotated[
        tuple[str, ...],
        Opt(
            "Run only these cells or steps (CELL, CELL/train/swift, '*/judge'); repeat it for "
            "several.",
            metavar="CELL",
        ),
    ] = ()
    start: Annotated[
        str | None,
        Opt("Start at this cell or step.", "--from", "CELL"),
    ] = None
    dry_run: DryRun = False
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()
