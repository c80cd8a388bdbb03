"""What moves a judge beside the conversation: whose it is, how long it is.

A judge's lean on a conversation is its score less what people gave it; where nobody did, less the
mean of the panel's other judges, which says how this judge differs from them and no more.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

from convbench.stats.estimate import Estimate
from convbench.stats.jackknife import Moments, jackknife


def self_preference(rows: Iterable[tuple[Hashable, bool, float]]) -> Estimate | None:
    """Return how much higher a judge leans on conversations of its own model family.

    `rows` are (group, whether the conversation is its family's, lean): the difference of the two
    means, over groups. None where one of them is over nothing (Panickssery et al., arXiv
    2404.13076, on what is measured).
    """
    moments = (
        (group, (float(own), lean if own else 0.0, float(not own), 0.0 if own else lean))
        for group, own, lean in rows
    )
    return jackknife(moments, _apart)


def length_bias(rows: Iterable[tuple[Hashable, int, float]]) -> Estimate | None:
    """Return how much higher a judge leans on a conversation of twice as many words.

    `rows` are (group, words, lean): the slope of a line over log2 of the words, over groups. None
    where lengths never differ. Dubois et al., arXiv 2404.04475, take length for what confounds
    judges.
    """
    logs = ((group, math.log2(max(1, words)), lean) for group, words, lean in rows)
    return jackknife(((group, (1.0, x, y, x * x, x * y)) for group, x, y in logs), _slope)


def _apart(sums: Moments) -> float | None:
    own, theirs, others, rest = sums
    return None if own < 0.5 or others < 0.5 else theirs / own - rest / others


def _slope(sums: Moments) -> float | None:
    n, x, y, xx, xy = sums
    spread = xx - x * x / n if n > 0.5 else 0.0
    # What is left of equal lengths is rounding, no variance.
    return None if spread <= 1e-9 * max(1.0, xx) else (xy - x * y / n) / spread
