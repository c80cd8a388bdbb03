"""Run model-written code in a sandbox, and render model-written pages.

May use errors and the guard of processes alone.
"""

from convbench.sandbox.grading import (
    CallOutcome,
    Limits,
    agree,
    boundary,
    check_reference,
    run_calls,
    run_calls_async,
)
from convbench.sandbox.wall import Boundary

__all__ = [
    "Boundary",
    "CallOutcome",
    "Limits",
    "agree",
    "boundary",
    "check_reference",
    "run_calls",
    "run_calls_async",
]
