"""WebSight's pages as ColBench's frontend tasks: the idea is the request, its page the goal.

Zhou et al. 2025 (SWEET-RL), released code: the first 20,000 rows, half to train, half to test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

FIRST = 20_000
"""Rows that are read, in the set's order; it is streamed, so that no more are read."""


def pages(rows: Iterable[Mapping[str, Any]], *, seed: int) -> Iterator[dict[str, Any]]:
    """Yield one row for each page: id, idea, page and split; the first half of FIRST is train, the
    rest test.

    A row without an idea or a page yields `{"reject": REASON}` in its place. Rows after FIRST are
    not read. `seed` has no effect.
    """
    del seed  # the split is the rows' order
    for number, row in enumerate(islice(rows, FIRST)):
        idea, page = (str(row.get(name) or "").strip() for name in ("llm_generated_idea", "text"))
        if not idea or not page:
            yield {"reject": "no idea or no page"}
            continue
        split = "train" if number < FIRST // 2 else "test"
        yield {"id": f"websight-{number:05d}", "idea": idea, "page": page, "split": split}
