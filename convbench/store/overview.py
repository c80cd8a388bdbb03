"""What a run holds, in a few numbers: one pass over its files, without its texts in memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convbench.stats.columns import Column
from convbench.store.jsonl import records
from convbench.store.keys import Hashes
from convbench.store.label import RunLabel, read_label
from convbench.store.run import Run


@dataclass(frozen=True)
class Overview:
    """Counts, judges and cost of one run."""

    run: Run
    label: RunLabel
    conversations: int
    """Conversations that ended well."""
    failed: int
    """Those that ended in a recorded failure."""
    judges: tuple[str, ...]
    """Who has scored it, in the order of their first verdicts."""
    evals: int
    """Child runs."""
    usd: float | None
    """Cost of the newest record of each, judges' too; None where a price is unknown."""

    @property
    def policy(self) -> str:
        """Reference of its policy."""
        m = self.run.manifest
        return m.cast[m.protocol.policy].model if m.cast else "imported"


def overview(run: Run) -> Overview:
    """Return what a run holds. Raises RunError naming the line that cannot be read."""
    talks, verdicts = _Newest(), _Newest()
    for file in run.files("conversations.jsonl"):
        for record in records(file, "key"):
            turns = record.get("turns")
            costs = [_cost(turn) for turn in turns] if isinstance(turns, list) else []
            talks.add(record["key"], _sum(costs), record.get("failure") is None)
    judges: dict[str, None] = {}
    for file in run.files("verdicts.jsonl"):
        for record in records(file, "judge", "conversation_id"):
            judges.setdefault(record["judge"])
            verdicts.add((record["judge"], record["conversation_id"]), _cost(record), True)
    conversations, failed, usd = talks.counted()
    return Overview(
        run=run, label=read_label(run), conversations=conversations, failed=failed,
        judges=tuple(judges), evals=len(run.children()), usd=_sum([usd, verdicts.counted()[2]]),
    )  # fmt: skip


class _Newest:
    """What the newest record of each name cost, and whether it ended well; in temporary files."""

    def __init__(self) -> None:
        self._names, self._costs, self._well = Hashes(), Column(array("d")), Column(array("b"))

    def add(self, name: object, usd: float | None, well: bool) -> None:
        """Add a record; None for a cost that is unknown."""
        self._names.add(name)
        self._costs.append(math.nan if usd is None else usd)
        self._well.append(well)

    def counted(self) -> tuple[int, int, float | None]:
        """Return how many ended well and how many did not, and what all of them cost."""
        again = self._names.repeated()
        newest: dict[int, tuple[float, int]] = {}
        spent, ended = 0.0, [0, 0]
        for name, usd, well in zip(self._names.all, self._costs, self._well, strict=True):
            if name in again:
                newest[name] = usd, well
            else:
                spent += usd
                ended[well] += 1
        for usd, well in newest.values():
            spent += usd
            ended[well] += 1
        return ended[1], ended[0], None if math.isnan(spent) else spent


def _cost(record: Any) -> float | None:
    """Return what a call cost: 0 where no model was asked, None where its price is unknown."""
    if not isinstance(record, dict):
        return 0.0
    cost = record.get("cost_usd")
    if isinstance(cost, int | float):
        return float(cost)
    return None if cost is not None or record.get("prompt_tokens") else 0.0


def _sum(costs: Sequence[float | None]) -> float | None:
    """Return the sum; None where a part is unknown."""
    return None if None in costs else sum(cost or 0.0 for cost in costs)
