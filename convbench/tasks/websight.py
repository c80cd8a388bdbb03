"""WebSight's pages as ColBench's frontend tasks: an idea is what is asked for, its page the goal.

Zhou et al. 2025 (SWEET-RL), released code: the first 20,000 rows, half to train, half to test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

FIRST = 20_000
"""Rows that are taken, in the set's order; it streams, so that no more are read."""


def pages(
    rows: Iterable[Mapping[str, Any]], *, seed: int, first: int = FIRST
) -> Iterator[dict[str, Any]]:
    """Yield a row a page: id, idea, page and split, the first half of `first` train. Rows without
    an idea or a page are rejected."""
    del seed  # the split is the rows' order
    for number, row in enumerate(islice(rows, first)):
        idea, page = (str(row.get(name) or "").strip() for name in ("llm_generated_idea", "text"))
        if not idea or not page:
            yield {"reject": "no idea or no page"}
            continue
        split = "train" if number < first // 2 else "test"
        yield {"id": f"websight-{number:05d}", "idea": idea, "page": page, "split": split}
