"""The engine: bounded async jobs, and model calls with journal, budget, limits, retries, batches.

Uses models and store, and the rooms below them.
"""

from convbench.engine.budget import Budget as Budget
from convbench.engine.caller import Caller as Caller
from convbench.engine.caller import RetryPolicy as RetryPolicy
from convbench.engine.jobs import Stopped as Stopped
from convbench.engine.jobs import Summary as Summary
from convbench.engine.jobs import run_in_loop as run_in_loop
from convbench.engine.journal import Journal as Journal
from convbench.engine.progress import Status as Status
from convbench.engine.progress import show_progress as show_progress
