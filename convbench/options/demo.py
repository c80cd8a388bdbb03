"""Options of `demo`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from convbench.options.declare import Opt
from convbench.options.shared import MOST_EACH, CallOptions


@dataclass(frozen=True)
class DemoOptions:
    """Watch a tiny policy learn on this machine: build, judge, train, eval, report."""

    EXAMPLES: ClassVar = ("convbench demo",)

    run: Annotated[Path, Opt("Where the run goes; an existing one is resumed.", metavar="DIR")] = (
        Path("runs") / "demo"
    )
    count: Annotated[int, Opt("Questions.", "--tasks", least=20, most=MOST_EACH)] = 300
    learners: tuple[str, ...] = ("swift", "star-gate")
    calls: Any = field(default_factory=CallOptions)
    """CallOptions; not asked for on the command line."""
