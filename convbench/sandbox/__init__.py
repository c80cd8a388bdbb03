"""Run model-written code in a sandbox, and render model-written pages."""

from convbench.sandbox.grading import Limits, Outcome, agree, arun, boundary, check_reference, run
from convbench.sandbox.wall import Boundary

__all__ = ["Boundary", "Limits", "Outcome", "agree", "arun", "boundary", "check_reference", "run"]
