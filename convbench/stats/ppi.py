"""Prediction-powered means: a judge scored all conversations, people some of them.

PPI++ for a mean (Angelopoulos, Duchi and Zrnic 2023, arXiv 2311.01453, section 5), over groups as
the independent units. Labels are a uniform draw of groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from convbench.stats.estimates import Estimate


def corrected_mean(
    people: Mapping[str, float], judge: Mapping[str, float], unlabelled: Mapping[str, float]
) -> Estimate | None:
    """Return the mean of people's scores, with the judge's scores of all groups in place of most
    labels.

    `people` and `judge` are means by group over the labelled conversations, `unlabelled` the
    judge's by group over groups without a label. With y people's and f the judge's scores, n
    labelled and N other groups:

        lambda = cov(y, f) / ((1 + n/N) var(f))
        mean   = mean(y) + lambda (mean of the other f - mean of the labelled f)
        se^2   = var(y - lambda f) / n + lambda^2 var(f) / N

    The interval uses Student's t with n - 1 degrees of freedom. `n` and `groups` count labelled
    groups. None without a label; without an error if there are fewer than three.
    """
    import numpy as np

    names = sorted(people.keys() & judge.keys())
    n, rest = len(names), len(unlabelled)
    if not n:
        return None
    y = np.array([people[name] for name in names])
    f = np.array([judge[name] for name in names])
    if n < 3:
        return Estimate(float(y.mean()), None, n, n, n - 1)
    others = np.array(list(unlabelled.values()))
    spread = float(np.concatenate([f, others]).var(ddof=1))
    power = 0.0
    if rest and spread > 0:
        power = float(np.cov(y, f)[0, 1]) / ((1 + n / rest) * spread)
    mean = float(y.mean())
    variance = float((y - power * f).var(ddof=1)) / n
    if power:
        mean += power * float(others.mean() - f.mean())
        variance += power**2 * spread / rest
    return Estimate(mean, math.sqrt(variance), n, n, n - 1)
