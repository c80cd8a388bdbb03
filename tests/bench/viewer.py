"""The viewer over 100,000 conversations, in a headless browser on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench import Row
from tests.view.conftest import browser, viewing
from tests.view.runs import many

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
    """First paint of the list, and the slowest of seven first filters, searches, conditions."""
    many(folder / "run", 100_000)
    with viewing(folder / "run") as found, browser() as chromium:
        paints, filters = [], []
        for asked in ASKED:  # each in a browser that has seen nothing yet
            page: Any = chromium.new_context().new_page()
            page.goto(found.page("#/list"))
            page.locator(".count strong", has_text="100,000").wait_for()
            paints.append(float(page.evaluate(PAINT)))
            filters.append(float(page.evaluate(SHOWN, [f"#/list?{asked}", "100,000"])))
            page.context.close()
    yield Row("viewer, 100,000 conversations, first paint", max(paints), "ms", 1000.0)
    yield Row("viewer, 100,000 conversations, slowest filter", max(filters), "ms", 300.0)
