"""Run directories on disk: records, tables, queries, checkpoints.

Uses answers, templates, schema.
"""

from convbench.store.run import Run, all_runs, find_run, refuse_latest, set_latest

__all__ = ["Run", "all_runs", "find_run", "refuse_latest", "set_latest"]
