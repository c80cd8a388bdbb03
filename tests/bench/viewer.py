"""The viewer over very many conversations, in a headless browser on this machine."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convbench.cache import CACHE
from tests.bench.bench import Row
from tests.view.conftest import browser, viewing

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
            "from pathlib import Path; from tests.view.runs import many; "
            f"many(Path({str(run)!r}), {rows})"
        )
        subprocess.run([sys.executable, "-c", made], check=True)  # its memory is not the viewer's
    os.environ[CACHE] = str(folder / "kept")
    shutil.rmtree(folder / "kept", ignore_errors=True)
    with browser() as chromium:
        start = time.monotonic()
        with viewing(run) as found:
            yield Row(f"{what}, first start until it listens", time.monotonic() - start, "s", 5.0)
            page: Any = chromium.new_context().new_page()
            page.goto(found.page("#/list"))
            page.locator(".count strong").wait_for()
            paint = float(page.evaluate(PAINT))
            yield Row(f"{what}, first paint while they are read", paint, "ms", 1000.0)
            page.locator(".count strong", has_text=f"{rows:,}").wait_for(timeout=3_600_000)
            took = time.monotonic() - start
            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = children.ru_utime + children.ru_stime
            yield Row(f"{what}, indexed after ({cpu:.0f} s of CPU)", took, "s", 1200.0)
            page.context.close()
        start, before = time.monotonic(), time.process_time()
        with viewing(run) as found:
            took, cpu = time.monotonic() - start, time.process_time() - before
            yield Row(f"{what}, next start until it listens ({cpu:.1f} s of CPU)", took, "s", 10.0)
            paints, filters = [], []
            before = time.process_time()
            for asked in ASKED:
                page = chromium.new_context().new_page()
                page.goto(found.page("#/list"))
                page.locator(".count strong", has_text=f"{rows:,}").wait_for(timeout=120_000)
                paints.append(float(page.evaluate(PAINT)))
                filters.append(float(page.evaluate(SHOWN, [f"#/list?{asked}", f"{rows:,}"])))
                page.context.close()
            cpu = (time.process_time() - before) / len(ASKED)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Row(f"{what}, first paint", max(paints), "ms", 1000.0)
    yield Row(f"{what}, slowest filter", max(filters), "ms", bound)
    yield Row(f"{what}, CPU of a page, a filter and its counts, of the server", cpu, "s", 1.0)
    yield Row(f"{what}, peak memory", held, "MB", 1024.0)
