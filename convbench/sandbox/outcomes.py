"""Run code on calls inside the boundary and read, outside, what came out.

Every run has a sandbox of its own that ends with it, so nothing an answer does reaches the next.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence

from convbench.errors import UnsupportedTask
from convbench.sandbox.choice import boundary
from convbench.sandbox.lines import Deadline
from convbench.sandbox.once import Limits, Outcome, once
from convbench.sandbox.values import same

RESTARTS = 3
"""Times the tests go on in a new sandbox after one has ended the process."""
_AT_ONCE = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))


def agree(one: Outcome, two: Outcome) -> bool:
    """Whether an answer's outcome is the reference's: equal outputs that are not None (Zhou et
    al. 2025), or exceptions of one class."""
    if one.ended == two.ended == "raised":
        return one.error == two.error
    if one.ended != "value" or two.ended != "value":
        return False
    return two.value is not None and same(one.value, two.value)


async def arun(
    code: Sequence[str], calls: Sequence[str], limits: Limits = Limits()
) -> list[Outcome]:
    """`run` in a thread."""
    return await asyncio.to_thread(run, code, calls, limits)


def run(code: Sequence[str], calls: Sequence[str], limits: Limits = Limits()) -> list[Outcome]:
    """Return the outcome of each call (a Python expression) with the code's names.

    `code`: texts, the first that is Python counts. Each call gets the code run afresh. Raises
    MissingDependency where no boundary stands here; nothing is ever run without one.
    """
    wall = boundary(limits.kind)
    found: list[Outcome] = []
    clock = Deadline(limits.wall_seconds(len(calls)))
    for _ in range(RESTARTS + 1):
        with _AT_ONCE:
            found += once(wall, list(code), list(calls[len(found) :]), limits, clock)
        if len(found) == len(calls) or clock.left() <= 0:
            break
        found.append(Outcome("died"))
    rest = Outcome("time" if clock.left() <= 0 else "died")
    return [*found, *[rest] * len(calls)][: len(calls)]


def check_reference(outcomes: Sequence[Outcome], name: str) -> None:
    """Refuse a task whose reference gives nothing to compare with, naming what it lacks."""
    for number, outcome in enumerate(outcomes, 1):
        why = _unsupported(outcome)
        if why:
            raise UnsupportedTask(
                f"task {name}: unsupported: the reference, on test {number}, {why}"
            )


def _unsupported(outcome: Outcome) -> str | None:
    if outcome.missing:
        return f"needs the module {outcome.missing!r}, which the sandbox lacks"
    if outcome.ended == "value":
        if outcome.value is None:
            return "gives None"
        return None if same(outcome.value, outcome.value) else "gives what equals nothing"
    if outcome.ended == "raised" and outcome.error not in _BROKEN:
        return None
    return outcome.why


_BROKEN = {"NameError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError",
           "RecursionError", "SystemExit", "KeyboardInterrupt", "PermissionError",
           "BlockingIOError", "OSError", "TabError"}  # fmt: skip
