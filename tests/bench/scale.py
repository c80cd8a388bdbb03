"""Many conversations through the commands: memory, time and disk against how many there are."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.bench import Row, convbench
from tests.bench.logs import write_logs

COUNTS = (10_000, 100_000)
COMMANDS: dict[str, tuple[str, ...]] = {
    "import": ("import", "logs.jsonl"),
    "judge --judge rules": ("judge", "--judge", "rules", "--quiet"),
    "the same again": ("judge", "--judge", "rules", "--quiet"),
    "query": ("query", "select split, count(*), avg(n_turns) from conversations group by 1"),
    "report": ("report",),
    "export --to openai": ("export", "--to", "openai", "--out", "exported"),
    "publish --dry-run": ("publish", "me/set", "--dry-run", "--judge", "rules"),
    "train swift --dry-run": ("train", "swift", "--dry-run", "--judge", "rules",
                              "--model", "local:pocket"),
}  # fmt: skip
GROWS: dict[str, float] = {"train swift --dry-run": 12}
"""Growth of peak memory that is allowed where it is not 2."""
BOUND_MB: dict[str, float] = {"train swift --dry-run": 16_000}
"""Peak memory that is allowed where it is not 1 GB."""


def scale(folder: Path) -> Iterator[Row]:
    """Every command at each of COUNTS (`CONVBENCH_SCALE=1000000,…` for others): its peak memory
    and CPU a conversation at the largest, over those at the smallest; the run's folder over its
    input."""
    counts = [int(n) for n in os.environ.get("CONVBENCH_SCALE", "").split(",") if n] or COUNTS
    peak: dict[str, list[float]] = {name: [] for name in COMMANDS}
    cpu: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for count in counts:
        place = folder / str(count)
        place.mkdir()
        size = write_logs(place / "logs.jsonl", count)
        for name, words in COMMANDS.items():
            run = [str(place / "run")] if words[0] == "report" else ["--run", "run"]
            started = time.monotonic()
            used = convbench([*words, *run], place)
            took = time.monotonic() - started
            peak[name].append(used.peak_mb)
            cpu[name].append(used.cpu_s / count * 1000)
            yield Row(f"{name}, {count:,} conversations: peak memory", used.peak_mb, "MB",
                      BOUND_MB.get(name, 1024))  # fmt: skip
            yield Row(f"{name}, {count:,}: CPU a conversation ({took:.0f} s in all)",
                      cpu[name][-1], "ms", 10)  # fmt: skip
            if name == "judge --judge rules":
                yield Row(f"run folder over its input, {count:,}", _bytes(place / "run") / size,
                          "x", 1.5)  # fmt: skip
        shutil.rmtree(place)
    for name in COMMANDS:
        label = f"{name}: peak memory, {counts[-1]:,} over {counts[0]:,}"
        yield Row(label, peak[name][-1] / peak[name][0], "x", GROWS.get(name, 2.0), 1.2)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
