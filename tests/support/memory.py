"""What something holds of each record: Python's peak at two counts, and the slope between them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def held(work: Callable[[int], object], few: int, more: int) -> float:
    """Return the bytes that `work` holds at most of each record beyond `few`, measured at `few` and
    `more`. Half of `few` are done before, so that what is loaded or made once does not count."""
    work(few // 2)
    return (peak(work, more) - peak(work, few)) / (more - few)


def peak(work: Callable[[int], object], count: int) -> int:
    """Return the most bytes that Python holds while so many are worked on."""
    tracemalloc.start()
    try:
        work(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
