"""Have the conversations that a run lacks."""

from __future__ import annotations

from convbench.engine.jobs import run as run_loop
from convbench.errors import RunError
from convbench.options.shared import CallOptions
from convbench.rollout.calls import at_once, calling, open_cast, under_way
from convbench.rollout.loop import Built, Planned, every_sample
from convbench.rollout.loop import build as build_run
from convbench.store import Run
from convbench.store.shards import is_sharded


def fill(
    run: Run, options: CallOptions, label: str = "build", planned: Planned = every_sample
) -> Built:
    """Have the conversations that the run lacks, under its lock."""
    if is_sharded(run.path):
        raise RunError(f"{run.path}: its records lie in shards; resume with convbench build")
    with run.lock():
        return run_loop(lambda: filled(run, options, label, planned))


async def filled(
    run: Run, options: CallOptions, label: str = "build", planned: Planned = every_sample
) -> Built:
    """The same in a loop that runs already; the caller holds the run's lock."""
    async with open_cast(run, options) as cast:
        many = at_once(options, cast.values())
        async with calling(run, options, label, many, cast.values()) as caller:
            jobs = under_way(many, cast.values())
            return await build_run(run, cast, caller, concurrency=jobs, planned=planned)
