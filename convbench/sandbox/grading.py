"""Run code on calls inside the sandbox, and compare the outputs outside with the expected ones.

Which sandbox works on this machine is tried once. Outputs arrive as JSON and are only data here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import marshal
import math
import os
import re
import selectors
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, Literal

from convbench.errors import MissingDependency, UnsupportedTask
from convbench.sandbox import confine
from convbench.sandbox.encoder import DEPTH, NODES
from convbench.sandbox.seccomp import filter_program
from convbench.sandbox.wall import (
    INSTALL,
    KINDS,
    Boundary,
    SandboxProcess,
    compile_program,
    package_paths,
)

NEAR = 1e-9
_EXACT = re.compile(r"[+-]?[\d.]{1,400}(?:/\d{1,400}|[eE][+-]?\d{1,3})?", re.ASCII)
_ENDLESS = ("NaN", "Infinity", "-Infinity")
PAIRED = 500
"""Most unordered items without an identical partner that are compared one by one."""


def outputs_equal(first: Any, second: Any) -> bool:
    """Return True if two outputs, in the JSON form of `encoder`, are equal.

    Both must be well-formed.

    Numbers (True is 1) may differ by 1e-9, relative or absolute, unless both are exact. Lists equal
    generators, but not tuples; sets and dicts have no order. NaN equals NaN.
    """
    a, b = decode_number(first), decode_number(second)
    if a is not None or b is not None:
        return a is not None and b is not None and numbers_close(a, b)
    if not isinstance(first, list) or not isinstance(second, list):
        return type(first) is type(second) and bool(first == second)
    kinds = {first[0], second[0]}
    if kinds <= {"l", "g"}:
        return _equal_in_order(first[1], second[1])
    if len(kinds) > 1:
        return False
    if first[0] == "t":
        return _equal_in_order(first[1], second[1])
    if first[0] in ("s", "d"):
        return _equal_unordered(first[1], second[1])
    if first[0] == "o":
        return bool(first[1] == second[1]) and outputs_equal(first[2], second[2])
    return bool(first == second)


def decode_number(value: Any) -> int | float | complex | Fraction | None:
    """Return an output in the JSON form of `encoder` as a number (a bool as it is); None if it is
    not one.

    Raise ValueError for an exact number that is too large to compute with.
    """
    if isinstance(value, int):
        return value
    if not isinstance(value, list) or value[0] not in ("i", "f", "c", "n"):
        return None
    if value[0] == "i":
        return int(value[1], 16)
    if value[0] == "f":
        return float(value[1])
    if value[0] == "c":
        return complex(float(value[1]), float(value[2]))
    if value[1] in _ENDLESS:
        return float(value[1])
    if not _EXACT.fullmatch(value[1]):
        raise ValueError("a number of a size that only costs memory")
    return Fraction(value[1])


def numbers_close(first: Any, second: Any) -> bool:
    """Return True if two numbers are equal, both NaN, or within 1e-9, relative or absolute.

    Integers and fractions among each other must be equal.
    """
    if first == second:
        return True
    if isinstance(first, int | Fraction) and isinstance(second, int | Fraction):
        return False
    try:
        if isinstance(first, complex) or isinstance(second, complex):
            a, b = complex(first), complex(second)
            return numbers_close(a.real, b.real) and numbers_close(a.imag, b.imag)
        a, b = float(first), float(second)
    except OverflowError:
        return False
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR)


def _equal_in_order(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return len(first) == len(second) and all(
        outputs_equal(a, b) for a, b in zip(first, second, strict=True)
    )


def _equal_unordered(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return True if the items can be paired: by identical JSON first, then by comparing."""
    if len(first) != len(second):
        return False
    left = {_canonical_text(item): item for item in second}
    mine = {_canonical_text(item): item for item in first}
    rest = [item for letters, item in mine.items() if letters not in left]
    others = [item for letters, item in left.items() if letters not in mine]
    if len(rest) != len(others) or len(rest) > PAIRED:
        return False
    for item in rest:
        partner = next((i for i, other in enumerate(others) if outputs_equal(item, other)), None)
        if partner is None:
            return False
        del others[partner]
    return True


def _canonical_text(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


def is_well_formed(value: Any) -> bool:
    """Return True if a JSON value has the form that `encoder` writes, within its bounds of size and
    depth.

    A hostile answer may write anything. Two values of this form compare without an error.
    """
    todo, nodes = [(value, 0)], 0
    while todo:
        node, depth = todo.pop()
        nodes += 1
        if nodes > NODES or depth > DEPTH:
            return False
        inner = _inner_values(node)
        if inner is None:
            return False
        todo += [(item, depth + 1) for item in inner]
    return True


def _inner_values(value: Any) -> Sequence[Any] | None:
    """Return the values that a value contains, empty for a scalar; None if it is malformed."""
    if value is None or isinstance(value, bool | int | str):
        return ()
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        return None
    tag, *rest = value
    if tag in ("l", "g", "t", "s", "d"):
        return rest[0] if len(rest) == 1 and isinstance(rest[0], list) else None
    if tag == "o":
        return rest[1:] if len(rest) == 2 and isinstance(rest[0], str) else None
    lengths = {"i": 1, "f": 1, "n": 1, "c": 2, "b": 1, "r": 2}
    texts = len(rest) == lengths.get(tag) and all(isinstance(text, str) for text in rest)
    try:
        return () if texts and (decode_number(value) is not None or tag in ("b", "r")) else None
    except (ValueError, ZeroDivisionError, OverflowError):
        return None


class Deadline:
    """Clock seconds that all sandboxes of one grading share; they count down only within `with`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.began: float | None = None

    def seconds_left(self) -> float:
        """Return the remaining seconds; negative after the deadline."""
        return self.seconds - (0 if self.began is None else time.monotonic() - self.began)

    def __enter__(self) -> None:
        self.began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds, self.began = self.seconds_left(), None


class BoundedReader:
    """Reads lines from a pipe whose other end may be hostile, bounded in length and time."""

    def __init__(self, fd: int, most: int) -> None:
        self.fd, self.most = fd, most
        self.held = bytearray()

    def next_line(self, seconds: float) -> bytes | None:
        """Return the next line without its line feed, waiting at most `seconds`.

        Return None at the end of the pipe, after that time, or once more than `most` bytes came
        without a line feed. An unfinished last line is not returned.
        """
        end, seen = time.monotonic() + seconds, 0
        with selectors.DefaultSelector() as selector:
            selector.register(self.fd, selectors.EVENT_READ)
            while (at := self.held.find(b"\n", seen)) < 0:
                seen, left = len(self.held), end - time.monotonic()
                if left <= 0 or seen > self.most or not selector.select(left):
                    return None
                more = os.read(self.fd, 1 << 16)
                if not more:
                    return None
                self.held += more
        line = bytes(self.held[:at])
        del self.held[: at + 1]
        return line


START_S = 30.0
"""Longest wait for a sandbox to start; machines are busy."""


Ended = Literal["value", "raised", "foreign", "time", "memory", "output", "died"]

_WORDS = {
    "value": "another output",
    "time": "out of time",
    "memory": "out of memory",
    "output": "too much output",
    "died": "ended the process",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run."""

    seconds: float = 1.0
    """CPU seconds of one call; clock seconds are ten times as many, all calls `wall_seconds`."""
    memory_mb: int = 768
    """Address space, MiB."""
    output_kb: int = 1024
    """Size of one output's JSON, KiB."""
    file_mb: int = 8
    """Size of one file in the scratch folder, MiB."""
    slack: float = 20.0
    """Clock seconds that a grading may lose to a busy machine."""
    modules: tuple[str, ...] = ()
    """Modules besides the standard library that code may import, if they are installed."""
    scope: Literal["module", "function"] = "module"
    """`function`: names of the code are locals, which its functions do not see (ColBench's released
    checker: helper functions, recursion and hoisted imports fail); a class becomes its name."""
    kind: str = "auto"
    """`bubblewrap` or `landlock` to require one of them."""

    def wall_seconds(self, calls: int) -> float:
        """Return the clock seconds for so many calls of one grading together.

        They are `slack` plus twice the CPU seconds of all calls. Calls that the program inside has
        not answered by then are out of time.
        """
        return self.slack + 2 * self.seconds * calls


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How one call ended, with its output or error."""

    ended: Ended
    value: Any = None
    """The decoded output, as `convbench.sandbox.grading` compares it."""
    error: str = ""
    """Class of the exception (`raised`), or of the object that is not compared (`foreign`)."""
    text: str = ""
    """The exception's message."""
    missing: str = ""
    """Module that an import did not find."""

    @property
    def why(self) -> str:
        """Return how the call ended as a predicate, such as `raised ValueError: …` or `out of
        time`.

        A value gives `another output`.
        """
        if self.ended == "raised":
            return f"raised {self.error}: {self.text}"[:200]
        if self.ended == "foreign":
            return f"gives an object of class {self.error}, which is not compared"
        return _WORDS[self.ended]


def starts(wall: Boundary, limits: Limits) -> bool:
    """Return True if a program in this sandbox starts, imports a module and computes the right
    value.

    Errors of the system give False.
    """
    with contextlib.suppress(OSError):
        code, calls = ["import fractions"], ["int(fractions.Fraction(2))"]
        outcomes = run_once(wall, code, calls, limits, Deadline(limits.wall_seconds(1)))
        return len(outcomes) == 1 and outcomes[0].value == 2
    return False


def run_once(
    wall: Boundary, code: list[str], calls: list[str], limits: Limits, clock: Deadline
) -> list[CallOutcome]:
    """Run the calls in one new sandbox; return the outcomes that it reported, in order, before it
    ended.

    There may be fewer than calls, or none if it did not start. `clock` counts down while it runs.
    Raise OSError if the process cannot be started.
    """
    job = _make_job(wall, limits) | {"code": code, "calls": calls}
    walled = wall.start_program(limits.modules, limits.memory_mb << 20)
    try:
        program = marshal.dumps(compile_program("inside.py"))
        return _run_job(walled, program + marshal.dumps(job), len(calls), limits, clock)
    finally:
        walled.end()


def _make_job(wall: Boundary, limits: Limits) -> dict[str, Any]:
    """Return the settings of the program inside, without code and calls."""
    places = package_paths(limits.modules)
    return {
        "seconds": limits.seconds,
        "scope": limits.scope,
        "memory": limits.memory_mb << 20,
        "output": limits.output_kb << 10,
        "file": limits.file_mb << 20,
        "paths": sorted({os.path.dirname(path) for path in places}),
        "names": [os.path.basename(path).partition(".")[0] for path in places],
        "threads": wall.max_threads(),
        "confine": wall.confine_settings(limits.modules, wall.choose_user()),
        "encoder": compile_program("encoder.py"),
    }


def _run_job(
    walled: SandboxProcess, job: bytes, count: int, limits: Limits, clock: Deadline
) -> list[CallOutcome]:
    stdin, stdout = walled.process.stdin, walled.process.stdout
    assert stdin is not None
    assert stdout is not None
    with contextlib.suppress(BrokenPipeError):
        stdin.write(job)
        stdin.close()
    lines = BoundedReader(stdout.fileno(), most=(limits.output_kb << 10) + 100)
    if lines.next_line(START_S) is None:
        return []
    outcomes: list[CallOutcome] = []
    with clock:
        while len(outcomes) < count:
            line = lines.next_line(min(10 * limits.seconds + 5, clock.seconds_left()))
            outcome = _parse_outcome(line, len(outcomes)) if line is not None else None
            if outcome is None:
                break
            outcomes.append(outcome)
    return outcomes


def _parse_outcome(line: bytes, number: int) -> CallOutcome | None:
    """Return the outcome of call `number` in a line; None if the line has another form."""
    try:
        message = json.loads(line)
        if not isinstance(message, list) or len(message) != 2 or message[0] != number:
            return None
        [(key, detail)] = message[1].items()
        if key == "value" and is_well_formed(detail):
            return CallOutcome("value", detail)
        if key == "raised":
            error, text, missing = (_printable_text(str(part)[:300]) for part in detail)
            return CallOutcome("raised", error=error, text=text, missing=missing)
        if key == "foreign" and isinstance(detail, str):
            return CallOutcome("foreign", error=_printable_text(detail[:100]))
        if key == "limit" and detail in ("time", "memory", "output"):
            return replace(CallOutcome("time"), ended=detail)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        pass
    return None


def _printable_text(text: str) -> str:
    """Return the text with unprintable characters escaped, so that it can be stored and shown."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@cache
def boundary(kind: str = "auto") -> Boundary:
    """Return the first sandbox that works on this machine: bubblewrap, else Landlock, or only
    `kind`.

    Each is tried with a small job, and the answer is kept for the process. Raise MissingDependency
    if none works: model-written code never runs without one.
    """
    program = os.path.realpath(sys.executable)
    as_root = (True, False) if os.geteuid() == 0 else (False,)
    for name in KINDS if kind == "auto" else (kind,):
        for root in as_root:
            wall = Boundary(name, program, root)
            if _stands(wall):
                return wall
    raise MissingDependency(
        "a sandbox that works here (bubblewrap with user namespaces, or a kernel with Landlock)",
        needed_for="running model-written code",
        install=INSTALL,
    )


def _stands(wall: Boundary) -> bool:
    """Return True if a sandbox works here, tried with a small job."""
    if wall.kind == "bubblewrap" and shutil.which("bwrap") is None:
        return False
    if wall.kind == "landlock" and (confine.version() < 1 or filter_program(alone=True) is None):
        return False
    return starts(wall, Limits())


RESTARTS = 3
"""Times that the tests continue in a new sandbox after a test ended the process."""
_AT_ONCE = threading.BoundedSemaphore(max(1, os.cpu_count() or 1))


def agree(answer: CallOutcome, reference: CallOutcome) -> bool:
    """Return True if an answer's outcome matches the reference's.

    That is equal outputs other than None (Zhou et al. 2025), or exceptions of the same class,
    whatever their messages. An outcome of any other kind matches nothing.
    """
    if answer.ended == reference.ended == "raised":
        return answer.error == reference.error
    if answer.ended != "value" or reference.ended != "value":
        return False
    return reference.value is not None and outputs_equal(answer.value, reference.value)


async def run_calls_async(
    code: Sequence[str], calls: Sequence[str], limits: Limits = Limits()
) -> list[CallOutcome]:
    """Return what `run_calls` returns, without blocking the event loop: it runs in a thread."""
    return await asyncio.to_thread(run_calls, code, calls, limits)


def run_calls(
    code: Sequence[str], calls: Sequence[str], limits: Limits = Limits()
) -> list[CallOutcome]:
    """Return one outcome for each call, a Python expression over the code's names, in order.

    Of the texts in `code` the first that is valid Python is used; it is run anew for each call.
    After a call that ends the process the rest goes on in a new sandbox, up to three times; calls
    that were never reached end with `died` or `time`. Raise MissingDependency if no sandbox works
    here: nothing is run without one.
    """
    wall = boundary(limits.kind)
    outcomes: list[CallOutcome] = []
    clock = Deadline(limits.wall_seconds(len(calls)))
    for _ in range(RESTARTS + 1):
        with _AT_ONCE:
            outcomes += run_once(wall, list(code), list(calls[len(outcomes) :]), limits, clock)
        if len(outcomes) == len(calls) or clock.seconds_left() <= 0:
            break
        outcomes.append(CallOutcome("died"))
    rest = CallOutcome("time" if clock.seconds_left() <= 0 else "died")
    return [*outcomes, *[rest] * len(calls)][: len(calls)]


def check_reference(outcomes: Sequence[CallOutcome], name: str) -> None:
    """Raise UnsupportedTask for the first outcome of a reference that nothing can be compared with.

    Such are None, an output that `outputs_equal` finds unequal to itself (NaN is not one: it equals
    NaN), a missing module, an error of the code itself (NameError, OSError and others) and anything
    but a value or an exception. Else return None.
    """
    for number, outcome in enumerate(outcomes, 1):
        why = _unsupported_reason(outcome)
        if why:
            raise UnsupportedTask(
                f"task {name}: unsupported: the reference, on test {number}, {why}"
            )


def _unsupported_reason(outcome: CallOutcome) -> str | None:
    if outcome.missing:
        return f"needs the module {outcome.missing!r}, which the sandbox lacks"
    if outcome.ended == "value":
        if outcome.value is None:
            return "returns None"
        same = outputs_equal(outcome.value, outcome.value)
        return None if same else "returns a value that is not equal to itself"
    if outcome.ended == "raised" and outcome.error not in _BROKEN:
        return None
    return outcome.why


_BROKEN = {
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
    "IndentationError",
    "RecursionError",
    "SystemExit",
    "KeyboardInterrupt",
    "PermissionError",
    "BlockingIOError",
    "OSError",
    "TabError",
}
