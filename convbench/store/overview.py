"""What a run holds, in a few numbers: one pass over its files, without its texts in memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from convbench.stats.columns import Column
from convbench.store.index import every_conversation_row, every_verdict_row
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
    for row in every_conversation_row(run.files("conversations.jsonl")):
        talks.add(row.key, row.usd, row.ended)
    judges: dict[str, None] = {}
    for verdict in every_verdict_row(run.files("verdicts.jsonl")):
        judges.setdefault(verdict.judge)
        verdicts.add((verdict.judge, verdict.conversation_id), verdict.usd, True)
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


def _sum(costs: Sequence[float | None]) -> float | None:
    """Return the sum; None where a part is unknown."""
    return None if None in costs else sum(cost or 0.0 for cost in costs)
