"""Build a run of conversations, in this process or shard by shard."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from convbench.errors import RunError
from convbench.options.build import BuildOptions
from convbench.options.specs import load_plugins
from convbench.options.spread import first_address, shard_index, with_pace
from convbench.rollout.build import BuildResult, BuildSummary, ExampleLoader
from convbench.rollout.build import build_or_resume as build_run
from convbench.store import Run
from convbench.store.shards import ShardTask, is_sharded, read_plan
from convbench.tasks.load import load_examples

__all__ = ["BuildResult", "build_or_resume"]


def build_or_resume(options: BuildOptions, load: ExampleLoader = load_examples) -> BuildResult:
    """Create a run and generate its conversations, or resume an existing run; return what was done.

    A dry run returns a preview and, with shards, a forecast. With `options.shard` only that shard
    of an existing run is worked on. Raises ConvbenchError subclasses, RunError for `shard` of a run
    without shards.
    """
    if options.shard is not None:
        return _build_shard(options, options.shard)
    calls = with_pace(first_address(options.calls), options.spread.rate)
    local_options = dataclasses.replace(options, calls=calls)
    if options.spread.is_requested or (options.run is not None and is_sharded(options.run)):
        return _build_by_shards(options, local_options, load)
    return build_run(local_options, load)


def _build_by_shards(
    options: BuildOptions, local_options: BuildOptions, load: ExampleLoader
) -> BuildResult:
    """Generate the conversations shard by shard; `local_options` are those of this process."""
    from convbench.shards.runner import ShardRunner

    runner = ShardRunner(options.spread, options.calls, options.specs)
    result = build_run(local_options, load, runner.build_shards)
    if result.preview is not None and options.spread.is_requested:
        name = options.run or Path("RUN")
        policy = result.manifest.cast[result.manifest.protocol.policy].model
        result.foreseen = runner.forecast_work(name, policy, result.preview.estimate)
    return result


def _build_shard(options: BuildOptions, shard: str) -> BuildResult:
    """Do the candidate tasks that the run's plan has for one shard, else build its
    conversations."""
    from convbench.shards.slice import BUILD, CANDIDATES, run_slice

    if options.run is None or not is_sharded(options.run):
        raise RunError(
            f"--shard {shard}: expected --run DIR of a run with shards; to make one: convbench "
            "build TASK --shards N --run DIR"
        )
    load_plugins(options.specs)
    run = Run.open(options.run)
    tasks = [task for task in read_plan(run.path).tasks if task.name == CANDIDATES]
    calls = with_pace(options.calls, options.spread.rate)
    (done,) = run_slice(run, *shard_index(shard), calls, tasks or [ShardTask(name=BUILD)])
    result = BuildResult(run.path, run.manifest, resumed=True)
    result.built = done if isinstance(done, BuildSummary) else BuildSummary(jobs=done.jobs)
    return result
