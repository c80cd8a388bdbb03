"""The interval of a share, which near 0 or 1 is not as wide to either side.

Student's t on the log odds, whose error is that of the share over p (1 - p) (Korn and Graubard 1998
compare it with others for clustered samples). Where all are alike there are no odds and the error
tells nothing: then Wilson's score interval (1927), in which each group counts once. A fault that
40 questions never showed may still be in some percent of all.
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
    if 0 < p < 1 and found.error > 0:
        odds, margin = math.log(p / (1 - p)), t * found.error / (p * (1 - p))
        return _share(odds - margin), _share(odds + margin)
    end = t * t / found.groups / (1 + t * t / found.groups)
    return (1 - end, 1.0) if p > 0.5 else (0.0, end)


def _share(odds: float) -> float:
    """Return the share of these log odds."""
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0
