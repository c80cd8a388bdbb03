"""Have the conversations that a run lacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from convbench.catalog.options import SpecOptions
from convbench.engine.jobs import run as run_loop
from convbench.rollout.calls import CallOptions, at_once, calling, open_cast
from convbench.rollout.manifest import Shape
from convbench.rollout.run import Built, Planned, every_sample
from convbench.rollout.run import build as build_run
from convbench.store import Run


@dataclass(frozen=True)
class BuildOptions:
    """What a user asks of `build`; None leaves the default."""

    task: str | None = None
    protocol: str | None = None
    tasks: int | Literal["all"] | None = None
    shape: Shape = Shape()
    model: str | None = None
    teacher: str | None = None
    run: Path | None = None
    dry_run: bool = False
    tested: bool = False
    """Refuse questions of which none is to test with: what follows needs some."""
    specs: SpecOptions = SpecOptions()
    calls: CallOptions = CallOptions()


def fill(
    run: Run, options: CallOptions, label: str = "build", planned: Planned = every_sample
) -> Built:
    """Have the conversations that the run lacks, under its lock."""

    async def go() -> Built:
        async with open_cast(run, options) as cast:
            many = at_once(options, cast.values())
            async with calling(run, options, label, many) as caller:
                return await build_run(run, cast, caller, concurrency=many, planned=planned)

    with run.lock():
        return run_loop(go)
