"""Model-written code, run where it can do no harm.

Uses errors and the guard of processes alone.
"""

from convbench.sandbox.grading import Limits, Outcome, agree, arun, boundary, check_reference, run
from convbench.sandbox.wall import Boundary

__all__ = ["Boundary", "Limits", "Outcome", "agree", "arun", "boundary", "check_reference", "run"]
