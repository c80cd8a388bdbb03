"""Build a run of conversations, in this process or shard by shard."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from convbench.errors import RunError
from convbench.options.build import BuildOptions
from convbench.options.specs import load_plugins
from convbench.options.spread import first_address, shard_index, with_pace
from convbench.rollout.build import BuildResult, Built, Load
from convbench.rollout.build import build as build_run
from convbench.store import Run
from convbench.store.shards import ShardTask, is_sharded, read_plan
from convbench.tasks.load import load_examples

__all__ = ["BuildResult", "build"]


def build(options: BuildOptions, load: Load = load_examples) -> BuildResult:
    """Create a run and generate its conversations, or resume an existing run.

    Raises ConvbenchError subclasses.
    """
    if options.shard is not None:
        return _one_shard(options, options.shard)
    calls = with_pace(first_address(options.calls), options.spread.rate)
    one = dataclasses.replace(options, calls=calls)
    if options.spread.said or (options.run is not None and is_sharded(options.run)):
        return _by_shards(options, one, load)
    return build_run(one, load)


def _by_shards(options: BuildOptions, one: BuildOptions, load: Load) -> BuildResult:
    """Generate the conversations shard by shard; `local_options` are those of this process."""
    from convbench.shards.runner import ShardRunner

    runner = ShardRunner(options.spread, options.calls, options.specs)
    result = build_run(one, load, runner.build)
    if result.preview is not None and options.spread.said:
        name = options.run or Path("RUN")
        policy = result.manifest.cast[result.manifest.protocol.policy].model
        result.foreseen = runner.forecast(name, policy, result.preview.estimate)
    return result


def _one_shard(options: BuildOptions, shard: str) -> BuildResult:
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
    result.built = done if isinstance(done, Built) else Built(jobs=done.jobs)
    return result
