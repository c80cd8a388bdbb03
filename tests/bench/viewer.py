"""The viewer over very many conversations, in a headless browser on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from convbench.util.cache import CACHE
from tests.bench.bench import Row, high_water, installed
from tests.helpers.viewing import browser

PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
SHOWN = """async ([address, before]) => {
  const counted = () => document.querySelector('.count strong')?.textContent ?? '';
  const start = performance.now();
  location.hash = address;
  while (counted() === before || !counted()) await new Promise(requestAnimationFrame);
  return performance.now() - start;
}"""
"""Milliseconds from an address to the frame in which its count is drawn."""
ASKED = (
    "result=correct", "result=wrong&temperature=0.3", "q=bubbles+99", "q=%22unit+4711%22",
    "min=0.5&judge=rules", "split=test&sort=words&desc=1", "where=words+%3E+20+AND+correct",
)  # fmt: skip


def viewer(folder: Path) -> Iterator[Row]:
    """100,000 conversations."""
    yield from _measured(folder, 100_000, 300.0)


def million(folder: Path) -> Iterator[Row]:
    """1,000,000 conversations; the index alone takes minutes. With `CONVBENCH_VIEWER_AT=FOLDER` the
    run and its index stay there."""
    yield from _measured(Path(os.environ.get("CONVBENCH_VIEWER_AT") or folder), 1_000_000, 500.0)


def _measured(folder: Path, rows: int, bound: float) -> Iterator[Row]:
    """At the first start, with no index kept: what is seen until the index is made. Then, at the
    second: first paint of the list, the slowest of seven first filters, searches, conditions, each
    in a browser that has seen nothing yet, and the most memory that the process ever held."""
    run, what = folder / "run", f"viewer, {rows:,} conversations"
    if not (run / "run.json").exists():
        made = (
            "from pathlib import Path; from tests.helpers.viewer_runs import many; "
            f"many(Path({str(run)!r}), {rows})"
        )
        subprocess.run([sys.executable, "-c", made], check=True)  # its memory is not the viewer's
    shutil.rmtree(folder / "kept", ignore_errors=True)
    with browser() as chromium:
        with _viewing(folder) as (viewer, pages, took):
            yield Row(f"{what}, first start until it listens", took, "s", 5.0)
            start = time.monotonic()
            page: Any = chromium.new_context().new_page()
            page.goto(f"{pages}#/list")
            page.locator(".count strong").wait_for()
            paint = float(page.evaluate(PAINT))
            yield Row(f"{what}, first paint while they are read", paint, "ms", 1000.0)
            page.locator(".count strong", has_text=f"{rows:,}").wait_for(timeout=3_600_000)
            took, used = took + time.monotonic() - start, viewer.cpu_times()
            cpu = used.children_user + used.children_system
            yield Row(f"{what}, indexed after ({cpu:.0f} s of CPU)", took, "s", 1200.0)
            page.context.close()
        with _viewing(folder) as (viewer, pages, took):
            before = _cpu(viewer)
            yield Row(f"{what}, next start until it listens ({before:.1f} s of CPU)",
                      took, "s", 10.0)  # fmt: skip
            paints, filters = [], []
            for asked in ASKED:
                page = chromium.new_context().new_page()
                page.goto(f"{pages}#/list")
                page.locator(".count strong", has_text=f"{rows:,}").wait_for(timeout=120_000)
                paints.append(float(page.evaluate(PAINT)))
                filters.append(float(page.evaluate(SHOWN, [f"#/list?{asked}", f"{rows:,}"])))
                page.context.close()
            cpu, held = (_cpu(viewer) - before) / len(ASKED), high_water(viewer.pid)
    yield Row(f"{what}, first paint", max(paints), "ms", 1000.0)
    yield Row(f"{what}, slowest filter", max(filters), "ms", bound)
    yield Row(f"{what}, CPU of a page, a filter and its counts, of the server", cpu, "s", 1.0)
    yield Row(f"{what}, peak memory", held, "MB", 1024.0)


@contextmanager
def _viewing(folder: Path) -> Iterator[tuple[psutil.Process, str, float]]:
    """Start `convbench view` on the run in the folder; yield its process, the address of its pages
    and the seconds until it listened. Its index is kept in the folder."""
    start = time.monotonic()
    with (folder / "viewer.log").open("w") as told:
        process = subprocess.Popen(
            [sys.executable, "-m", "convbench", "view", "run", "--no-open", "--port", "0"],
            cwd=folder, env={**installed(), CACHE: str(folder / "kept")}, text=True,
            stdout=subprocess.PIPE, stderr=told,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        address = re.search(r"http://\S+", process.stdout.readline())
        if address is None:
            raise RuntimeError(f"no viewer: {(folder / 'viewer.log').read_text()[-800:]}")
        yield psutil.Process(process.pid), address[0], time.monotonic() - start
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _cpu(process: psutil.Process) -> float:
    """Return the CPU seconds of a process, without its children's."""
    used = process.cpu_times()
    return float(used.user + used.system)
