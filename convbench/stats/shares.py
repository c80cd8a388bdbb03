"""The interval of a share, which near 0 or 1 is not as wide to either side.

Wilson's score interval (Wilson 1927) with as many independent conversations as the clustered error
tells, p (1 - p) / error^2 (Korn and Graubard 1998), and Student's t over groups in place of the
normal. Where all are alike the error tells nothing, and each group counts once: a fault that 40
questions never showed may still be in some percent of all.
"""

from __future__ import annotations

import math

from convbench.stats.estimate import LEVEL, Estimate
from convbench.stats.special import t_critical


def share_interval(found: Estimate) -> tuple[float, float] | None:
    """Return the 95% interval of a mean of zeros and ones; None without a standard error."""
    if found.error is None:
        return None
    p, t = found.mean, t_critical(found.df, LEVEL)
    n = p * (1 - p) / found.error**2 if found.error and 0 < p < 1 else float(found.groups)
    wider = 1 + t * t / n
    middle = (p + t * t / (2 * n)) / wider
    margin = t * math.sqrt(p * (1 - p) / n + (t / (2 * n)) ** 2) / wider
    return max(0.0, middle - margin), min(1.0, middle + margin)
