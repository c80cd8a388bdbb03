"""Shards on two cores against one process: a judge that computes (unit tests in the sandbox).

The clock tells it on an idle machine alone, and so does the CPU: it is the whole machine's, for
what is killed in a sandbox once it has answered is in no parent's account.

It is told twice. Of tests that compute, which is what a second core is for; and of ColBench's own,
which are done in microseconds, so that starting a sandbox and taking it down is nearly all there
is. The kernel takes namespaces down in threads of its own, beside the next grading: one process
keeps more than one core busy so, and two cannot be twice as fast.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.bench import ROOT, Row, installed
from tests.bench.computing import write_tasks
from tests.bench.sandbox import TASKS

COMPUTING = Path(__file__).with_name("computing.py")
PLUGIN = ROOT / "tests" / "sandbox" / "plug_backend.py"
COUNT, SHORT = 400, 1_000
"""Conversations: about tests that compute, four on each task, and about ColBench's, ten on each;
`CONVBENCH_CORES` for another number of the first, `CONVBENCH_CORES_SHORT` of the second."""


@dataclass(frozen=True)
class _Took:
    """What a command took."""

    seconds: float
    busy: float
    """CPU seconds of the whole machine meanwhile, the kernel's own threads among them."""


def cores(folder: Path) -> Iterator[Row]:
    """Each process one grading at a time; at least 1.8 times as fast where tests compute."""
    count = int(os.environ.get("CONVBENCH_CORES", COUNT))
    write_tasks(folder / "tasks.jsonl", max(1, count // 4))
    yield from _rows(folder, "computing", folder / "tasks.jsonl", COMPUTING, count // 4, 4, 1.8)
    if not TASKS.exists():
        print(f"cores: found no {TASKS.name}: nothing measured of it", file=sys.stderr)
        return
    short = int(os.environ.get("CONVBENCH_CORES_SHORT", SHORT))
    yield from _rows(folder, "ColBench's", TASKS, PLUGIN, short // 10, 10, 1.2)


def _rows(
    folder: Path, what: str, tasks: Path, plugin: Path, questions: int, samples: int, bound: float
) -> Iterator[Row]:
    """Judge the same conversations in one process, and as shards of which two are at work."""
    one, two = f"{plugin.stem}-one", f"{plugin.stem}-two"
    _ran(folder, plugin, "build", "colbench-backend", "--set", f"task.source.file={tasks}",
         "--tasks", str(questions), "--samples", str(samples), "--temperatures", "1.0", "--model",
         f"rule:{plugin.stem}:agent", "--teacher", f"rule:{plugin.stem}:human",
         "--run", one)  # fmt: skip
    shutil.copytree(folder / one, folder / two)
    alone = _ran(folder, plugin, "judge", "--run", one, "--concurrency", "1")
    both = _ran(folder, plugin, "judge", "--run", two, "--concurrency", "1", "--on", "local:2")
    head = f"{questions * samples} gradings, {what} tests"
    yield Row(f"2 at once over 1, {head}, by the clock", alone.seconds / both.seconds, "x", bound,
              at_least=True)  # fmt: skip
    yield Row(f"the same: the machine's CPU, 2 over 1 ({alone.busy:.1f} s)",
              both.busy / alone.busy, "x", 1.1 if bound > 1.5 else 1.3)  # fmt: skip
    yield Row("the same: the most that two cores allow, beside what one keeps busy",
              2 * alone.seconds / alone.busy, "x", bound, at_least=True)  # fmt: skip


def _environment() -> dict[str, str]:
    return {**installed(), "COLBENCH_TASKS": str(TASKS)}


def _ran(folder: Path, plugin: Path, *words: str) -> _Took:
    """Run a command to its end."""
    busy, began = _busy(), time.perf_counter()
    command = [sys.executable, "-m", "convbench", *words, "--plugin", str(plugin), "--quiet"]
    subprocess.run(command, cwd=folder, env=_environment(), stdout=subprocess.DEVNULL, check=True)
    return _Took(time.perf_counter() - began, _busy() - busy)


def _busy() -> float:
    """Return the CPU seconds that this machine was not idle since it began."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _idle, _waiting, hard, soft, *_ = map(int, file.readline().split()[1:])
    return (user + nice + system + hard + soft) / os.sysconf("SC_CLK_TCK")
