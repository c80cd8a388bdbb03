"""Options of `eval`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import CallOptions, DryRun, MultiRunMixin, RunDirs, SpecOptions
from convbench.util.words import Split


@dataclass(frozen=True)
class EvalOptions(MultiRunMixin):
    """Evaluate a policy on a run's test questions, with the same teacher and judges."""

    EXAMPLES: ClassVar = (
        "convbench eval runs/latest/checkpoints/swift",
        "convbench eval openai/gpt-4o-mini --run runs/latest",
        "convbench eval openai/gpt-4o-mini --dry-run",
        "convbench eval runs/arc/checkpoints/swift --run runs/arc --run runs/sciq",
    )

    policy: Annotated[
        str,
        Opt("A checkpoint folder, or any model that build takes.", argument=True, names="policies"),
    ]
    run: RunDirs = ()
    """One or several parent runs; without any the run that the checkpoint was trained on, else the
    newest."""
    name: Annotated[str | None, Opt("Name of the child run; without it the checkpoint's.")] = None
    protocol: Annotated[
        str | None,
        Opt("Protocol; without it the recipe's eval protocol, else the run's.", names="protocols"),
    ] = None
    split: Annotated[Split, Opt("Which split to evaluate on.")] = "test"
    dry_run: DryRun = False
    calls: CallOptions = field(default_factory=CallOptions)
    specs: SpecOptions = SpecOptions()
