"""Prediction-powered means: a judge scored all conversations, people some of them.

PPI++ for a mean (Angelopoulos, Duchi and Zrnic 2023, arXiv 2311.01453, section 5), over groups as
the independent units. Labels are a uniform draw of groups.
"""

from __future__ import annotations

import math
from typing import Any

from convbench.stats.estimates import Estimate


def corrected_mean(people: Any, judge: Any, others: Any) -> Estimate:
    """Return the mean of people's scores, with the judge's scores of all groups in place of most
    labels.

    With y people's and f the judge's means of n labelled groups, and N groups without a label, of
    which `others` are the judge's means:

        lambda = cov(y, f) / ((1 + n/N) var(f))
        mean   = mean(y) + lambda (mean of the other f - mean of the labelled f)
        se^2   = var(y - lambda f) / n + lambda^2 var(f) / N

    The interval uses Student's t with n - 1 degrees of freedom; no error with fewer than three.
    """
    import numpy as np

    y, f, rest = (np.asarray(each, float) for each in (people, judge, others))
    n, mean = len(y), float(y.mean())
    if n < 3:
        return Estimate(mean, None, n, n, n - 1)
    spread = float(np.concatenate([f, rest]).var(ddof=1))
    power = 0.0
    if len(rest) and spread > 0:
        power = float(np.cov(y, f)[0, 1]) / ((1 + n / len(rest)) * spread)
    variance = float((y - power * f).var(ddof=1)) / n
    if power:
        mean += power * float(rest.mean() - f.mean())
        variance += power**2 * spread / len(rest)
    return Estimate(mean, math.sqrt(variance), n, n, n - 1)
