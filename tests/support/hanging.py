"""A test that hangs is named and its process ended, whatever it waits in.

pytest-timeout raises in the main thread; that does not help where the test then waits again while
it cleans up (a child in a `with` block, a thread that is joined), or in a call that never looks for
signals. So, GRACE seconds after its timeout, the process is ended from outside Python, with the
stacks of all threads; under xdist the worker is replaced and its test fails by name.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator

import pytest

GRACE = "hang_grace"
AT_EXIT_S = 60.0
_stderr = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let seconds between a test's timeout and its process's end be named."""
    parser.addini(GRACE, "seconds from a test's timeout to the end of its process", default="30")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr, before it is captured."""
    config.stash[_stderr] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process of a test that goes on after its timeout."""
    limit = _timeout(item) + float(item.config.getini(GRACE))
    faulthandler.dump_traceback_later(limit, exit=True, file=item.config.stash[_stderr])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_unconfigure(config: pytest.Config) -> None:
    """End a process that waits for threads of tests that are over; xdist ends its workers."""
    if not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(AT_EXIT_S, exit=True, file=config.stash[_stderr])


def _timeout(item: pytest.Item) -> float:
    """Return a test's timeout in seconds, as pytest-timeout reads it."""
    marker = item.get_closest_marker("timeout")
    given = marker.args[0] if marker and marker.args else None
    return float(given or item.config.getoption("timeout") or item.config.getini("timeout"))
