"""`build`: from a task and a cast to a run full of conversations, here or by workers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from convbench.options.build import BuildOptions
from convbench.options.spread import first_address
from convbench.rollout.build import BuildResult, Load
from convbench.rollout.build import build as build_run
from convbench.store.shards import is_sharded
from convbench.tasks.load import load_examples

__all__ = ["BuildResult", "build"]


def build(options: BuildOptions, load: Load = load_examples) -> BuildResult:
    """Make a run and have its conversations, or resume the run that is there.

    Raises ConvbenchError subclasses.
    """
    one = dataclasses.replace(options, calls=first_address(options.calls))
    if options.spread.said or (options.run is not None and is_sharded(options.run)):
        return _spread(options, one, load)
    return build_run(one, load)


def _spread(options: BuildOptions, one: BuildOptions, load: Load) -> BuildResult:
    """Have workers make the conversations, on shards; `one` is what this process does alone."""
    from convbench.workers.spread import Spreading

    spreading = Spreading(options.spread, options.calls, options.specs)
    result = build_run(one, load, spreading.build)
    if result.preview is not None and options.spread.said:
        name = options.run or Path("RUN")
        found = result.preview
        result.foreseen = spreading.foresee(
            name, result.manifest.cast[result.manifest.protocol.policy].model,
            conversations=found.conversations, calls=found.total_calls,
            prompt_tokens=found.prompt_tokens, reply_tokens=found.completion_tokens, usd=found.usd,
        )  # fmt: skip
    return result
