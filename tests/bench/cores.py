"""Two workers on two cores against one: a judge that computes (unit tests in the sandbox).

The clock tells it on an idle machine alone. Beside it stands what other work changes little: the
CPU that both ways take, and how evenly two workers share it.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import ROOT, Row, installed
from tests.bench.sandbox import TASKS

PLUGIN = ROOT / "tests" / "sandbox" / "plug_backend.py"
COUNT = 1_000
"""Conversations; `CONVBENCH_CORES` for another number."""
SHARDS = 16


def cores(folder: Path) -> Iterator[Row]:
    """Each worker one grading at a time; at least 1.8 times as fast."""
    if not TASKS.exists():
        print(f"cores: found no {TASKS.name}: nothing measured", file=sys.stderr)
        return
    count = int(os.environ.get("CONVBENCH_CORES", COUNT))
    samples = max(1, count // 100)
    _ran(folder, "build", "colbench-backend", "--set", f"task.source.file={TASKS}", "--tasks",
         str(count // samples), "--samples", str(samples), "--temperatures", "1.0", "--model",
         "rule:plug_backend:agent", "--teacher", "rule:plug_backend:human",
         "--run", "one")  # fmt: skip
    shutil.copytree(folder / "one", folder / "two")
    one_s, one_cpu = _ran(folder, "judge", "--run", "one", "--concurrency", "1")
    two_s, two_cpu = _ran(folder, "judge", "--run", "two", "--concurrency", "1",
                          "--shards", str(SHARDS), "--on", "local:2")  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-m", "convbench", "work", "two", "--list", "--json"], cwd=folder,
        env=_environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    done = [worker["done"] for worker in json.loads(told)["result"]["workers"]]
    yield Row(f"2 workers over 1, {count} gradings, by the clock", one_s / two_s, "x", 1.8,
              at_least=True)  # fmt: skip
    yield Row(f"the same: CPU of 2 over that of 1 ({one_cpu:.1f} s)", two_cpu / one_cpu, "x", 1.1)
    free = one_cpu / two_cpu * sum(done) / max(done)
    yield Row("the same: what both give on two free cores", free, "x", 1.8, at_least=True)


def _environment() -> dict[str, str]:
    return {**installed(), "COLBENCH_TASKS": str(TASKS)}


def _ran(folder: Path, *words: str) -> tuple[float, float]:
    """Run a command; return its seconds, and its CPU seconds with all that it started."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    plugin = ["--plugin", str(PLUGIN)]
    command = [sys.executable, "-m", "convbench", *words, *plugin, "--quiet"]
    subprocess.run(command, cwd=folder, env=_environment(), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used
