"""For pytest, `-p tests.bench.mutant_plugin`: which tests run a line, and which tests come first.

MUTANT_OUT names the file to write: the seconds of every test, and what failed. MUTANT_LINES names a
folder of the package: then it holds for every line of the folder's files the tests that run it.
MUTANT_ORDER names a file with the tests that come first, in their order, and those that are left
out; with `only`, no others run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

import convbench

ROOT = Path(__file__).resolve().parents[2]
OUT = os.environ.get("MUTANT_OUT")
LINES = os.environ.get("MUTANT_LINES")
ORDER = os.environ.get("MUTANT_ORDER")
seconds: dict[str, float] = {}
failed: list[str] = []
# `convbench` is imported above, before lines are counted: what runs at import belongs to no test
counted = coverage.Coverage(data_file=None, include=[f"{ROOT / LINES}/*"]) if LINES else None


def pytest_configure() -> None:
    """See that the copy is tested, not the checkout; begin to count lines."""
    assert Path(convbench.__file__).is_relative_to(ROOT), convbench.__file__
    if counted:
        counted.start()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put tests in order and leave some out."""
    if not ORDER:
        return
    order = json.loads(Path(ORDER).read_text())
    place = {name: at for at, name in enumerate(order["first"])}
    without = set(order["without"])
    chosen = [
        item
        for item in items
        if item.nodeid not in without and (item.nodeid in place or not order["only"])
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = sorted(chosen, key=lambda item: place.get(item.nodeid, len(place)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count a test's lines as its own."""
    if counted:
        counted.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        if counted:
            counted.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep how long a test took and whether it failed."""
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    if report.failed:
        failed.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Keep what could not be collected."""
    if report.failed:
        failed.append(report.nodeid)


def pytest_unconfigure() -> None:
    """Write what was seen."""
    if counted:
        counted.stop()
    if OUT:
        document = {"seconds": seconds, "failed": failed, "lines": _tests_by_line()}
        Path(OUT).write_text(json.dumps(document))


def _tests_by_line() -> dict[str, dict[int, list[int]]]:
    """Return for each file the tests of each line, by their place in `seconds`."""
    if not counted:
        return {}
    place = {name: at for at, name in enumerate(seconds)}
    data = counted.get_data()
    lines = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file).items()
        lines[str(Path(file).relative_to(ROOT))] = {
            line: [place[name] for name in names if name in place] for line, names in by_line
        }
    return lines
