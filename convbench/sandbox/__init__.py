"""Model-written code, run where it can do no harm.

Uses errors alone.
"""

from convbench.sandbox.boundary import Boundary, boundary
from convbench.sandbox.run import Limits, Outcome, agree, arun, check_reference, run

__all__ = ["Boundary", "Limits", "Outcome", "agree", "arun", "boundary", "check_reference", "run"]
