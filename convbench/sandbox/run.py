"""Run code on calls inside the boundary and read, outside, what came out.

Every run has a sandbox of its own that ends with it, so nothing an answer does reaches the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import marshal
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from convbench.errors import UnsupportedTask
from convbench.sandbox.boundary import Boundary, boundary, compiled
from convbench.sandbox.lines import Deadline, Lines
from convbench.sandbox.places import packages
from convbench.sandbox.values import same, well_formed
from convbench.sandbox.walled import Walled

Ended = Literal["value", "raised", "foreign", "time", "memory", "output", "died"]
START_S = 30.0
"""Longest wait for a sandbox to start; machines are busy."""
RESTARTS = 3
"""Times the tests go on in a new sandbox after one has ended the process."""
_AT_ONCE = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use."""

    seconds: float = 1.0
    """CPU seconds of one call; ten times as many of the clock, `wall_seconds` for all of them."""
    memory_mb: int = 768
    """Address space, MiB."""
    output_kb: int = 1024
    """JSON of one output, KiB."""
    file_mb: int = 8
    """Size of one file in the scratch folder, MiB."""
    slack: float = 20.0
    """Seconds of the clock that a grading may lose to a busy machine."""
    modules: tuple[str, ...] = ()
    """Modules beside the standard library that code may import, where they are installed."""
    kind: str = "auto"
    """`bubblewrap` or `landlock` to insist on one."""

    def wall_seconds(self, calls: int) -> float:
        """Return how many seconds of the clock all calls of one grading have together, whatever
        the program inside says or does; those it has not answered then are out of time."""
        return self.slack + 2 * self.seconds * calls


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended, and with what."""

    ended: Ended
    value: Any = None
    """The decoded output, as `convbench.sandbox.values` compares it."""
    error: str = ""
    """Class of the exception raised, or of the object that is not compared (`foreign`)."""
    text: str = ""
    """Its words."""
    missing: str = ""
    """Module that an import did not find."""

    @property
    def why(self) -> str:
        """In words."""
        if self.ended == "raised":
            return f"raised {self.error}: {self.text}"[:200]
        if self.ended == "foreign":
            return f"gives an object of class {self.error}, which is not compared"
        return _WORDS[self.ended]


_WORDS = {
    "value": "another output", "time": "out of time", "memory": "out of memory",
    "output": "too much output", "died": "ended the process",
}  # fmt: skip


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
            found += _once(wall, list(code), list(calls[len(found) :]), limits, clock)
        if len(found) == len(calls) or clock.left() <= 0:
            break
        found.append(Outcome("died"))
    rest = Outcome("time" if clock.left() <= 0 else "died")
    return [*found, *[rest] * len(calls)][: len(calls)]


def starts(wall: Boundary, limits: Limits) -> bool:
    """Whether the program inside this wall starts, finds the standard library and does a sum."""
    with contextlib.suppress(OSError):
        code, calls = ["import fractions"], ["int(fractions.Fraction(2))"]
        found = _once(wall, code, calls, limits, Deadline(limits.wall_seconds(1)))
        return len(found) == 1 and found[0].value == 2
    return False


def _once(
    wall: Boundary, code: list[str], calls: list[str], limits: Limits, clock: Deadline
) -> list[Outcome]:
    """Run the calls in one sandbox; return the outcomes it got to tell."""
    job = _job(wall, limits) | {"code": code, "calls": calls}
    walled = wall.start(limits.modules, limits.memory_mb << 20)
    try:
        program = marshal.dumps(compiled("inside.py"))
        return _talk(walled, program + marshal.dumps(job), len(calls), limits, clock)
    finally:
        walled.end()


def _job(wall: Boundary, limits: Limits) -> dict[str, Any]:
    """Return what the program inside is told besides code and calls."""
    places = packages(limits.modules)
    return {
        "seconds": limits.seconds,
        "memory": limits.memory_mb << 20,
        "output": limits.output_kb << 10,
        "file": limits.file_mb << 20,
        "paths": sorted({os.path.dirname(place) for place in places}),
        "names": [os.path.basename(place).partition(".")[0] for place in places],
        "threads": wall.threads(),
        "confine": wall.settings(limits.modules, wall.user()),
        "encoder": compiled("encoder.py"),
    }


def _talk(walled: Walled, job: bytes, count: int, limits: Limits, clock: Deadline) -> list[Outcome]:
    stdin, stdout = walled.process.stdin, walled.process.stdout
    assert stdin is not None
    assert stdout is not None
    with contextlib.suppress(BrokenPipeError):
        stdin.write(job)
        stdin.close()
    lines = Lines(stdout.fileno(), most=(limits.output_kb << 10) + 100)
    if lines.next(START_S) is None:
        return []
    found: list[Outcome] = []
    with clock:
        while len(found) < count:
            line = lines.next(min(10 * limits.seconds + 5, clock.left()))
            outcome = _read(line, len(found)) if line is not None else None
            if outcome is None:
                break
            found.append(outcome)
    return found


def _read(line: bytes, number: int) -> Outcome | None:
    """Read one line; None where it is not what the program inside writes."""
    try:
        found = json.loads(line)
        if not isinstance(found, list) or len(found) != 2 or found[0] != number:
            return None
        [(key, said)] = found[1].items()
        if key == "value" and well_formed(said):
            return Outcome("value", said)
        if key == "raised":
            error, text, missing = (_printable(str(part)[:300]) for part in said)
            return Outcome("raised", error=error, text=text, missing=missing)
        if key == "foreign" and isinstance(said, str):
            return Outcome("foreign", error=_printable(said[:100]))
        if key == "limit" and said in ("time", "memory", "output"):
            return replace(Outcome("time"), ended=said)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        pass
    return None


def _printable(text: str) -> str:
    """Return a text that can be stored and shown, whatever the answer put into it."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


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
