"""What something holds of each record: Python's peak at two counts, and the slope between them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

BLOCK = 1 << 13
"""Records that are so many that what is held at once no longer counts."""


def held_below(most: float, work: Callable[[int], object], few: int, more: int) -> None:
    """Assert that `work` holds less than `most` bytes of each record beyond `few`, at `few` and at
    `more`. Half of `few` are done before, so that what is loaded or made once does not count; what
    is above is measured once more, for a thread that an earlier test left may have allocated."""

    def held() -> float:
        return (peak(work, more) - peak(work, few)) / (more - few)

    work(few // 2)
    found = held()
    if found >= most:
        found = held()
    assert found < most, f"found {found:.1f} bytes of each record; expected less than {most}"


def peak(work: Callable[[int], object], count: int) -> int:
    """Return the most bytes that Python holds while so many are worked on."""
    tracemalloc.start()
    try:
        work(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
