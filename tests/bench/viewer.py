"""The viewer over very many conversations, in a headless browser on this machine."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    """1,000,000 conversations; the index alone takes minutes."""
    yield from _measured(folder, 1_000_000, 500.0)


def _measured(folder: Path, rows: int, bound: float) -> Iterator[Row]:
    """First paint of the list, the slowest of seven first filters, searches, conditions, each in a
    browser that has seen nothing yet, and the most memory that the process ever held."""
    made = (
        "from pathlib import Path; from tests.view.runs import many; "
        f"many(Path({str(folder / 'run')!r}), {rows})"
    )
    subprocess.run([sys.executable, "-c", made], check=True)  # its memory is not the viewer's
    with viewing(folder / "run") as found, browser() as chromium:
        paints, filters = [], []
        for asked in ASKED:
            page: Any = chromium.new_context().new_page()
            page.goto(found.page("#/list"))
            page.locator(".count strong", has_text=f"{rows:,}").wait_for(timeout=120_000)
            paints.append(float(page.evaluate(PAINT)))
            filters.append(float(page.evaluate(SHOWN, [f"#/list?{asked}", f"{rows:,}"])))
            page.context.close()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Row(f"viewer, {rows:,} conversations, first paint", max(paints), "ms", 1000.0)
    yield Row(f"viewer, {rows:,} conversations, slowest filter", max(filters), "ms", bound)
    yield Row(f"viewer, {rows:,} conversations, peak memory", held, "MB", 1024.0)
