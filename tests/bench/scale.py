"""Many conversations through the commands: memory, time and disk against how many there are.

`CONVBENCH_SCALE=1000000` for other counts; with `CONVBENCH_SCALE_AT=FOLDER` logs, runs and figures
stay there, and what was measured there already is taken from there, so that hours can be stopped.
`CONVBENCH_SCALE_ONLY=publish,train` measures these commands alone, `CONVBENCH_SCALE_OF=10000` on a
run that is made of the one of 10,000 there, copied under new names.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from convbench.util.cache import CACHE
from tests.bench.bench import Row, Used, convbench, high_water, installed, write_questions
from tests.helpers.logs import inflate, write_logs
from tests.support.hub_server import HubServer

COUNTS = (10_000, 100_000)
TURNS = ("--set", "task.source.file=questions.jsonl", "--samples", "4", "--turns", "3",
         "--model", "scripted:policy", "--tasks", "all", "--run", "built", "--quiet")  # fmt: skip
COMMANDS: dict[str, tuple[str, ...]] = {
    "import": ("import", "logs.jsonl"),
    "judge --judge rules": ("judge", "--judge", "rules", "--quiet"),
    "the same again": ("judge", "--judge", "rules", "--quiet"),
    "query": ("query", "select split, count(*), avg(n_turns) from conversations group by 1"),
    "report": ("report",),
    "view, its index": (),
    "export --to openai": ("export", "--to", "openai", "--out", "exported"),
    "publish --dry-run": ("publish", "me/set", "--dry-run", "--judge", "imported"),
    "pull": ("pull", "me/set", "--run", "pulled"),
    "train swift --dry-run": ("train", "swift", "--dry-run", "--judge", "imported",
                              "--model", "local:pocket"),
    "build": ("build", "arc", *TURNS),
    "build, resumed when finished": ("build", "--run", "built", "--quiet"),
}  # fmt: skip
OVER = ("judge --judge rules", "publish --dry-run")
"""Commands after which the folder is weighed against its input."""
RESUMED = "build, resumed when finished"


def scale(folder: Path) -> Iterator[Row]:
    """Every command at each of the counts: its peak memory and CPU a conversation, at the largest
    count over those at the smallest; the run's folder over its input."""
    counts = [int(n) for n in os.environ.get("CONVBENCH_SCALE", "").split(",") if n] or COUNTS
    kept = os.environ.get("CONVBENCH_SCALE_AT")
    only = [name for name in os.environ.get("CONVBENCH_SCALE_ONLY", "").split(",") if name]
    names = [n for n in COMMANDS if not only or any(one in n for one in only)]
    found: dict[str, dict[int, Used]] = {name: {} for name in names}
    for count in counts:
        place = (Path(kept) if kept else folder) / str(count)
        place.mkdir(parents=True, exist_ok=True)
        for name in names:
            used, took, share = _measured(place, count, name)
            found[name][count] = used
            yield Row(f"{name}, {count:,} conversations: peak memory", used.peak_mb, "MB", 1024)
            yield Row(f"{name}, {count:,}: CPU a conversation ({took:.0f} s in all)",
                      used.cpu_s / count * 1000, "ms", 10)  # fmt: skip
            if name == RESUMED:
                yield Row(f"{name}, {count:,}: CPU", used.cpu_s, "s", 20)
            if share is not None:
                yield Row(f"{name}, {count:,}: folder over its input", share, "x", 1.5)
        if not kept:
            shutil.rmtree(place)
    first, last = counts[0], counts[-1]
    for name, used_at in found.items() if first != last else ():
        label = f"{name}: peak memory, {last:,} over {first:,}"
        yield Row(label, used_at[last].peak_mb / used_at[first].peak_mb, "x", 2.0, 1.2)


def _measured(place: Path, count: int, name: str) -> tuple[Used, float, float | None]:
    """Return what a command used, its seconds, and the folder's share of its input where that is
    weighed; as it was measured here before, where it was."""
    file = place / "figures.json"
    figures = json.loads(file.read_text()) if file.exists() else {}
    if name not in figures:
        _ready(place, count, name)
        words = COMMANDS[name]
        if "--run" not in words:
            words = (*words, "run") if name == "report" else (*words, "--run", "run")
        started = time.monotonic()
        if name == "pull":
            used = _pulled(place, words)
        else:
            used = convbench(words, place) if COMMANDS[name] else _indexed(place)
        took = time.monotonic() - started
        weighed = {"publish --dry-run": place / "run" / "publish"}.get(name, place / "run")
        logs = place / "logs.jsonl"  # absent where the run is a copy many times over
        share = _bytes(weighed) / logs.stat().st_size if name in OVER and logs.exists() else None
        figures[name] = [used.cpu_s, used.peak_mb, took, share]
        file.write_text(json.dumps(figures, indent=1) + "\n")
    cpu, peak, took, share = figures[name]
    return Used(cpu, peak), took, share


def _pulled(place: Path, words: tuple[str, ...]) -> Used:
    """Pull what the dry run laid out from a Hub on this machine."""
    laid = place / "run" / "publish"
    files = {path.relative_to(laid).as_posix(): path for path in laid.rglob("*") if path.is_file()}
    with HubServer() as hub:
        hub.add_repo("me/set", {name: path.read_bytes() for name, path in files.items()})
        return convbench(words, place, hub.client_env(place / "hub"))


def _indexed(place: Path) -> Used:
    """Make the viewer's rows of a run, in a process of its own as the viewer does."""
    shutil.rmtree(place / "rows", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [sys.executable, "-m", "convbench.viewer.follow"], stdin=subprocess.PIPE,
        env={**installed(), CACHE: str(place / "rows")},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps([str((place / "run").resolve())]).encode())
    process.stdin.close()
    peak = 0.0
    while process.poll() is None:
        with contextlib.suppress(OSError, StopIteration):  # it has just ended
            peak = max(peak, high_water(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise RuntimeError(f"the rows of {place} were not made: exit code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Used(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak)


def _ready(place: Path, count: int, name: str) -> None:
    """Write what a command reads, and take away what one that was stopped left."""
    small = os.environ.get("CONVBENCH_SCALE_OF")
    made = "built" if name.startswith("build") else "run"
    if small and int(small) != count and not (place / made).exists():
        inflate(place.parent / small / made, place / made, count // int(small))
    elif name == "import":
        write_logs(place / "logs.jsonl", count)
    elif name == "build":
        write_questions(place / "questions.jsonl", count // 4)
    anew = {"import": "run", "pull": "pulled", "build": "built"}.get(name)
    if anew is not None:
        shutil.rmtree(place / anew, ignore_errors=True)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
