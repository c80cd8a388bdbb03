"""`local:pocket`: conversations a second, and how many come out otherwise in other batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from convbench.store import Run
from tests.bench.bench import Row, convbench

SPEED_TASKS, TASKS, SAMPLES = 300, 67, 3
AT_ONCE = (8, 32, 64)
BUILD = ("build", "pocket", "--mode", "thinking", "--model", "local:pocket", "--max-tokens", "96",
         "--samples", str(SAMPLES), "--quiet")  # fmt: skip

Said = dict[tuple[str, int], tuple[str, ...]]
"""What was said in each conversation, by question and sample."""


def local(folder: Path) -> Iterator[Row]:
    """Three turns a conversation, at temperatures 0.3, 0.7 and 1.0."""
    started = time.perf_counter()
    convbench([*BUILD, "--tasks", str(SPEED_TASKS), "--run", "speed"], folder)
    rate = SPEED_TASKS * SAMPLES / (time.perf_counter() - started)
    yield Row("local:pocket, conversations a second, with loading", rate, "", 15.0, at_least=True)
    alone = _said(folder, 1, "alone")
    for most in AT_ONCE:
        found = _said(folder, most, f"at-{most}")
        yield Row(f"conversations that differ, {most} at once from alone", _differ(alone, found),
                  "%", 2.0)  # fmt: skip


def _said(folder: Path, most: int, name: str) -> Said:
    """Hold the same conversations with at most so many at once."""
    convbench([*BUILD, "--tasks", str(TASKS), "--concurrency", str(most), "--run", name], folder)
    return {
        (one.example_id, one.sample): tuple(str(turn.content) for turn in one.turns)
        for one in Run.open(folder / name).conversations()
    }


def _differ(first: Said, second: Said) -> float:
    """Return the share of conversations, in per cent, that are not the same word for word."""
    if set(first) != set(second) or len(first) != TASKS * SAMPLES:
        raise RuntimeError("the runs do not hold the same conversations")
    return 100 * sum(first[key] != second[key] for key in first) / len(first)
