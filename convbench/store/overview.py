"""What a run holds, in a few numbers: one pass over its files, without its texts in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convbench.store.jsonl import records
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
    """Cost of all recorded calls, judges' too; None where a price is unknown."""

    @property
    def policy(self) -> str:
        """Reference of its policy."""
        m = self.run.manifest
        return m.cast[m.protocol.policy].model if m.cast else "imported"


def overview(run: Run) -> Overview:
    """Return what a run holds. Raises RunError naming the line that cannot be read."""
    had: dict[str, tuple[bool, float | None]] = {}
    talks = (one for file in run.files("conversations.jsonl") for one in records(file, "key"))
    for record in talks:
        turns = record.get("turns")
        costs = [_cost(turn) for turn in turns] if isinstance(turns, list) else []
        had[record["key"]] = (record.get("failure") is None, _sum(costs))
    judged = {
        (record["judge"], record["conversation_id"]): _cost(record)
        for file in run.files("verdicts.jsonl")
        for record in records(file, "judge", "conversation_id")
    }
    done = sum(well for well, _ in had.values())
    return Overview(
        run=run, label=read_label(run), conversations=done, failed=len(had) - done,
        judges=tuple(dict.fromkeys(judge for judge, _ in judged)), evals=len(run.children()),
        usd=_sum([*(cost for _, cost in had.values()), *judged.values()]),
    )  # fmt: skip


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
