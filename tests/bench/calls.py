"""Model calls: makespan against the ideal, client CPU a call, memory."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench import Row, convbench, write_questions
from tests.support.serve import spawn

LATENCY_S = 0.5


def makespan(folder: Path) -> Iterator[Row]:
    """500 questions, 3 conversations of 3 turns, and judging: 6,000 calls of 0.5 s.

    The time from first request to last reply, as the provider saw it, over the ideal
    ceil(calls / concurrency) * latency.
    """
    write_questions(folder / "q.jsonl", 500)
    with spawn("provider") as url:  # what is imported is compiled once, as by an installation
        for arguments in (_build("q.jsonl", "first", 1), _judge("first")):
            convbench([*arguments, *_calls(url, 1)], folder)
    for concurrency, bound, goal in ((64, 1.15, 1.05), (256, 2.8, 1.1), (1024, 4.0, 1.3)):
        spans, ideal, cpu, calls, peak = 0.0, 0.0, 0.0, 0, 0.0
        with spawn("provider", "--latency", str(LATENCY_S)) as url:
            run = f"run{concurrency}"
            for arguments in (_build("q.jsonl", run, 500), _judge(run)):
                _post(f"{url}/_reset")
                used = convbench([*arguments, *_calls(url, concurrency)], folder)
                stats = _stats(url)
                cpu, calls, peak = cpu + used.cpu_s, calls + stats["calls"], max(peak, used.peak_mb)
                spans += stats["span_s"]
                ideal += math.ceil(stats["calls"] / concurrency) * LATENCY_S
        yield Row(f"makespan / ideal, concurrency {concurrency}", spans / ideal, "x", bound, goal)
        yield Row(f"the same: CPU a call, start-up included, {concurrency} in flight",
                  cpu / calls * 1000, "ms", 2.0, 0.5)  # fmt: skip
        yield Row(f"the same: peak memory, {concurrency} in flight", peak, "MB", 300.0, 200.0)


def client_cpu(folder: Path) -> Iterator[Row]:
    """CPU a call on an OpenAI-compatible endpoint: the slope between 100 and 700 questions."""
    write_questions(folder / "q.jsonl", 700)
    used = {}
    with spawn("provider", "--latency", "0.05") as url:
        for count in (100, 700):
            arguments = _build("q.jsonl", f"cpu{count}", count)
            used[count] = convbench([*arguments, *_calls(url, 64)], folder)
    cpu = (used[700].cpu_s - used[100].cpu_s) / (600 * 9) * 1000
    yield Row("client CPU a call", cpu, "ms", 5.0, 3.0)


def memory(folder: Path) -> Iterator[Row]:
    """Growth of peak memory from 1,000 to 15,000 conversations."""
    write_questions(folder / "q.jsonl", 5001)
    peak = {}
    with spawn("provider") as url:
        for count in (334, 5001):
            arguments = _build("q.jsonl", f"memory{count}", count)
            peak[count] = convbench([*arguments, *_calls(url, 64)], folder).peak_mb
    growth = peak[5001] - peak[334]
    yield Row("memory growth, 1,000 to 15,000 conversations", growth, "MB", 100.0)


def _build(file: str, run: str, count: int) -> list[str]:
    return ["build", "arc", "--set", f"task.source.file={file}", "--tasks", str(count),
            "--run", run, "--model", "openai/local"]  # fmt: skip


def _judge(run: str) -> list[str]:
    return ["judge", "--run", run, "--judge", "openai/local-judge"]


def _calls(url: str, concurrency: int) -> list[str]:
    return ["--api-base", f"{url}/v1", "--concurrency", str(concurrency), "--quiet"]


def _stats(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/_stats") as reply:
        found: dict[str, Any] = json.load(reply)
        return found


def _post(url: str) -> None:
    urllib.request.urlopen(urllib.request.Request(url, method="POST", data=b"")).close()
