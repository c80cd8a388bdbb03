"""`build`: from a task and a cast to a run full of conversations."""

from __future__ import annotations

from convbench.rollout.build import BuildResult, build

__all__ = ["BuildResult", "build"]
