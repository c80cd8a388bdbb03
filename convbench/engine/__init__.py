"""The one engine: bounded async jobs, model calls with journal, budget, limits, retries, waves.

Uses models and store beside it, and what lies below.
"""

from convbench.engine.budget import Budget
from convbench.engine.caller import Caller
from convbench.engine.jobs import Stopped, Summary, run, run_jobs
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
    "run",
    "run_jobs",
]
