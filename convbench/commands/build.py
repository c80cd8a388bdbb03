"""`build`: from a task and a cast to a run full of conversations, here or by workers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from convbench.options.build import BuildOptions
from convbench.rollout.build import BuildResult, Load
from convbench.rollout.build import build as build_run
from convbench.rollout.fill import fill
from convbench.store.shards import is_sharded
from convbench.tasks.load import load_examples
from convbench.workers.spread import Spreading, first_address

__all__ = ["BuildResult", "build"]


def build(options: BuildOptions, load: Load = load_examples) -> BuildResult:
    """Make a run and have its conversations, or resume the run that is there.

    Raises ConvbenchError subclasses.
    """
    spreading = Spreading(options.spread, options.calls, options.specs)
    sharded = options.run is not None and is_sharded(options.run)
    one = dataclasses.replace(options, calls=first_address(options.calls))
    result = build_run(one, load, spreading.build if sharded or spreading.said else fill)
    if result.preview is not None and spreading.said:
        name = options.run or Path("RUN")
        found = result.preview
        result.foreseen = spreading.foresee(
            name, result.manifest.cast[result.manifest.protocol.policy].model,
            conversations=found.conversations, calls=found.total_calls,
            prompt_tokens=found.prompt_tokens, reply_tokens=found.completion_tokens, usd=found.usd,
        )  # fmt: skip
    return result
