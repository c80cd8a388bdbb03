"""The engine: bounded async jobs, and model calls with journal, budget, limits, retries, batches.

Uses models and store, and the rooms below them.
"""

from convbench.engine.budget import Budget
from convbench.engine.caller import Caller
from convbench.engine.jobs import Stopped, Summary, run_in_loop, run_jobs
from convbench.engine.journal import Journal
from convbench.engine.limiter import RetryPolicy
from convbench.engine.progress import Progress, Status

__all__ = [
    "Budget",
    "Caller",
    "Journal",
    "Progress",
    "RetryPolicy",
    "Status",
    "Stopped",
    "Summary",
    "run_in_loop",
    "run_jobs",
]
