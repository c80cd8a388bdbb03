"""Student's t and the sign test, from their definitions: no package is needed for a report."""

from __future__ import annotations

import math
from functools import lru_cache

TINY = 1e-300


def t_two_sided(t: float, df: float) -> float:
    """Return P(|T| >= |t|) for Student's t with `df` degrees of freedom.

    It is I_x(df/2, 1/2) at x = df / (df + t^2), the regularised incomplete beta function.
    """
    return beta_inc(df / 2, 0.5, df / (df + t * t)) if math.isfinite(t) else 0.0


@lru_cache(1024)
def t_critical(df: float, level: float = 0.95) -> float:
    """Return the t whose interval [-t, t] holds `level` of Student's t; by bisection."""
    low, high = 0.0, 2.0
    while t_two_sided(high, df) > 1 - level:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, df) > 1 - level else (low, middle)
    return (low + high) / 2


def beta_inc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) for a, b > 0 and x in [0, 1]."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b
    return math.exp(log_front) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function (Lentz's method)."""
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away(1 + term * d)
            c = _away(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _away(value: float) -> float:
    return value if abs(value) > TINY else TINY


def sign_test(first: int, second: int) -> float:
    """Return the exact two-sided p of a fair coin that fell `first` and `second` times.

    1 where it was never thrown.
    """
    thrown = first + second
    tail = sum(math.comb(thrown, k) for k in range(min(first, second) + 1))
    return min(1.0, 2 * tail / (1 << thrown))
