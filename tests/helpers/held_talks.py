"""Hold conversations of three turns in batches; as a program, up to a moment at which it is killed.

python -m tests.helpers.held_talks BASE FOLDER MODEL MOMENT, with a moment such as `reply 3`: the
third reply is written, and then the process is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.engine import Budget, Caller, Journal, RetryPolicy, batches
from convbench.engine.batches import BatchLog, BatchQueue
from convbench.engine.recorded_jobs import RecordedJobs, run_recorded
from convbench.models import open_model
from convbench.models.model import Model
from tests.helpers.talk import converse

RETRY = RetryPolicy(backoff_s=0.005, longest_s=0.01, patience_s=30.0)


class Talks(RecordedJobs[int, list[str]]):
    """Conversations of three turns."""

    def __init__(self, folder: Path, caller: Caller, model: Model, count: int) -> None:
        self.file = folder / "talks.jsonl"
        self.caller, self.model, self.count_of = caller, model, count
        self.said: dict[int, list[str]] = {}

    def jobs(self) -> Iterator[int]:
        return iter(range(self.count_of))

    def __len__(self) -> int:
        return self.count_of

    async def result(self, job: int) -> list[str]:
        return await converse(self.caller, self.model, job)

    def failed_result(self, job: int, error: Exception) -> list[str] | None:
        return [f"failed: {error}"]

    def owns(self, key: str) -> bool:
        return True

    def record(self, job: int, result: list[str]) -> bytes:
        self.said[job] = result
        return json.dumps([job, result]).encode()

    def is_failed(self, result: list[str]) -> bool:
        return result[0].startswith("failed")


async def hold(
    base: str, folder: Path, ref: str, *, batch: bool, count: int, budget: Budget | None = None
) -> tuple[dict[int, list[str]], Any, Caller]:
    """Hold the conversations; return what was said, how the jobs ended, and the caller."""
    model = open_model(ref, api_base=base)
    journal = Journal(folder / "calls.jsonl")
    caller = Caller(journal, budget or Budget(), RETRY)
    queue = caller.batches = BatchQueue(caller, [model], sends=batch)
    talks = Talks(folder, caller, model, count)
    try:
        summary = await run_recorded(talks, caller, 32)
    finally:
        await queue.aclose()
        await model.aclose()
        journal.close()
    return talks.said, summary, caller


def die_at(moment: str) -> None:
    """Have this process end without a word at a moment."""
    counts: Counter[str] = Counter()

    def reached(name: str) -> None:
        counts[name] += 1
        if moment == f"{name} {counts[name]}":
            os._exit(9)

    note, append = BatchLog.note, Journal.append

    def write_note(self: BatchLog, sent: Any, *names: str, **what: Any) -> None:
        if not names:
            reached("created" if "batch" in what else "ended")
        note(self, sent, *names, **what)
        if names or "batch" in what:
            reached("intent" if names else "batch")

    def write_reply(self: Journal, *args: Any, **more: Any) -> None:
        append(self, *args, **more)
        reached("reply")

    BatchLog.note, Journal.append = write_note, write_reply  # type: ignore[method-assign]


if __name__ == "__main__":
    batches.SOONEST_S, batches.LISTED_S = 0.005, 0.01
    die_at(sys.argv[4])
    asyncio.run(hold(sys.argv[1], Path(sys.argv[2]), sys.argv[3], batch=True, count=4))
