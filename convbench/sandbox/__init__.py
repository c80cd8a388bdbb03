"""Model-written code, run where it can do no harm.

Uses errors and the guard of processes alone.
"""

from convbench.sandbox.boundary import Boundary
from convbench.sandbox.choice import boundary
from convbench.sandbox.once import Limits, Outcome
from convbench.sandbox.outcomes import agree, arun, check_reference, run

__all__ = ["Boundary", "Limits", "Outcome", "agree", "arun", "boundary", "check_reference", "run"]
