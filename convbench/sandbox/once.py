"""One sandbox: code and calls go in, the outcome of each call comes out."""

from __future__ import annotations

import contextlib
import json
import marshal
import os
from dataclasses import dataclass, replace
from typing import Any, Literal

from convbench.sandbox.boundary import Boundary, compiled
from convbench.sandbox.lines import Deadline, Lines
from convbench.sandbox.places import packages
from convbench.sandbox.values import well_formed
from convbench.sandbox.walled import Walled

START_S = 30.0
"""Longest wait for a sandbox to start; machines are busy."""


Ended = Literal["value", "raised", "foreign", "time", "memory", "output", "died"]

_WORDS = {
    "value": "another output", "time": "out of time", "memory": "out of memory",
    "output": "too much output", "died": "ended the process",
}  # fmt: skip


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
    scope: Literal["module", "function"] = "module"
    """`function`: names of the code are locals, which its functions do not see (ColBench's released
    checker: helper functions, recursion and hoisted imports fail); a class is its name."""
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


def starts(wall: Boundary, limits: Limits) -> bool:
    """Whether the program inside this wall starts, finds the standard library and does a sum."""
    with contextlib.suppress(OSError):
        code, calls = ["import fractions"], ["int(fractions.Fraction(2))"]
        found = once(wall, code, calls, limits, Deadline(limits.wall_seconds(1)))
        return len(found) == 1 and found[0].value == 2
    return False


def once(
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
        "scope": limits.scope,
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
