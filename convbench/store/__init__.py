"""Run directories on disk."""

from convbench.store.run import Run, all_runs, find_run, set_latest

__all__ = ["Run", "all_runs", "find_run", "set_latest"]
