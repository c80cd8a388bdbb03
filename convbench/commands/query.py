"""`query`: SQL over the views of one or several runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from convbench.errors import UsageError
from convbench.printable import printable
from convbench.store.formats import FORMATS, Format, render
from convbench.store.jsonl import write_named
from convbench.store.limits import SECONDS
from convbench.store.query import Result
from convbench.store.query import query as run_query
from convbench.store.run import Run


def query(sql: str, runs: Sequence[Run], *, seconds: float = SECONDS, hard: bool = False) -> Result:
    """Run one reading SQL statement over the runs' views (examples, conversations, turns,
    verdicts, runs). Raises QueryError, also after `seconds`; a program that does nothing but ask
    may end itself where nothing else helps (`hard`)."""
    return run_query(sql, runs, seconds=seconds, hard=hard)


def check_format(form: str, out: Path | None = None, *, terminal: bool | None = None) -> Format:
    """Return the format, or a QueryError: unknown, or parquet onto a terminal."""
    known = next((name for name in FORMATS if name == form), None)
    if known is None:
        raise UsageError(f"--format {form}: expected one of {', '.join(FORMATS)}")
    seen = sys.stdout.isatty() if terminal is None else terminal
    if known == "parquet" and out is None and seen:
        raise UsageError("--format parquet is binary; name a file with --out, or redirect stdout")
    return known


def write_result(
    result: Result, form: Format = "table", out: Path | None = None, width: int = 80
) -> None:
    """Write a result to a file, or to stdout."""
    data = render(result, form, width)
    if out is not None:
        write_named(out, data)
        return
    try:
        if sys.stdout.isatty():  # what a model wrote must not steer the terminal
            data = printable(data.decode()).encode()
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
