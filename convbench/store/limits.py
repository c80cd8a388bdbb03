"""Limit the time and the memory of a query, beyond what the tables of the runs take.

DuckDB can be interrupted only between two blocks of rows, so one huge value can block it. The limit
on address space ends most of those; with `exit_on_timeout` the process ends itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convbench.errors import QueryError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SECONDS = 30.0
"""Seconds that a query may take by default."""
GRACE_S = 5.0
"""Seconds after the limit at which the process ends itself if DuckDB is still at work."""
MEMORY_MB = 2048
"""MiB that a query may use, besides the runs' own tables and three copies of them."""

SMALL = 32 << 20
"""Bytes of records up to which one thread reads them: each thread has buffers of its own."""


class OutOfMemory(QueryError):
    """A query needs more memory than it may use."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much memory records may take."""

    large: int
    """Bytes of records beyond which they are spilled to temporary files."""
    held_mb: int
    """MiB of spilled records that stay in memory."""


ONCE = MemoryLimit(64 << 20, 256)
"""For a single query."""
OFTEN = MemoryLimit(256 << 20, 512)
"""For the viewer, which runs many queries."""
SPILLED = 8
"""Largest number of bytes of temporary files for a byte of records."""


def allow_spilling(connection: DuckDBPyConnection, size: int, limit: MemoryLimit = ONCE) -> bool:
    """Let DuckDB spill to temporary files if records of `size` bytes exceed the limit; return True
    if so.

    DuckDB then holds at most `limit.held_mb` MiB in memory, and removes its files when it is
    closed. In any case the progress bar is turned off, and up to 32 MiB of records one thread is
    used.
    """
    import duckdb

    # The bar would be drawn on stdout even without a terminal. In a notebook without ipywidgets
    # there is none, and DuckDB refuses the setting.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    if size <= SMALL:
        connection.execute("SET threads = 1")
    if size <= limit.large:
        return False
    from convbench.store.scratch import scratch_path

    folder = str(scratch_path()).replace("'", "''")
    connection.execute(f"SET temp_directory = '{folder}'")
    connection.execute(f"SET max_temp_directory_size = '{SPILLED * max(size, SMALL)}B'")
    connection.execute(f"SET memory_limit = '{limit.held_mb}MiB'")
    return True


def seal_memory(connection: DuckDBPyConnection) -> None:
    """Limit a connection's memory to 2,048 MiB and four times what its tables take, and forbid
    spilling."""
    connection.execute("SET temp_directory = ''")
    connection.execute(f"SET memory_limit = '{MEMORY_MB + 4 * _used_mb(connection)}MiB'")


@contextlib.contextmanager
def limit_query(
    connection: DuckDBPyConnection, seconds: float, advice: str, *, exit_on_timeout: bool = False
) -> Iterator[None]:
    """Run the body of `with` within limits of time and memory; nothing is yielded.

    Raises QueryError after `seconds`, OutOfMemory (a subclass) if memory runs out, both with a
    message that ends with `advice`, and KeyboardInterrupt for Ctrl-C. With `exit_on_timeout` the
    address space is limited too, and this process ends itself (exit code 1) if DuckDB has not
    stopped 5 s after the limit.
    """
    import duckdb

    line = f"took longer than {seconds:g} s; {advice}"
    ends = [threading.Timer(seconds, connection.interrupt)]
    if exit_on_timeout:
        ends.append(threading.Timer(seconds + GRACE_S, _exit_with_error, [line]))
    for timer in ends:
        timer.daemon = True
        timer.start()
    most = (MEMORY_MB * 3 // 2 + 4 * _used_mb(connection)) << 20 if exit_on_timeout else 0
    space = limit_address_space(most) if exit_on_timeout else contextlib.nullcontext()
    try:
        with as_keyboard_interrupt(), space:
            yield
    except duckdb.InterruptException:
        raise QueryError(line) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise OutOfMemory(
            f"needs more than {MEMORY_MB:,} MiB besides the runs' own tables; {advice}"
        ) from None
    finally:
        for timer in ends:
            timer.cancel()


@contextlib.contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C in the body of `with`: DuckDB makes it a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None


def _used_mb(connection: DuckDBPyConnection) -> int:
    rows = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    return int(rows[0][0] or 0) >> 20


@contextlib.contextmanager
def limit_address_space(extra_bytes: int) -> Iterator[None]:
    """Limit the address space of this process, in the body of `with`, to its present size and
    `extra_bytes`.

    Beyond that an allocation raises MemoryError. The limit of before is restored at the end.
    Nothing is done on systems without /proc.
    """
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            has = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = has + extra_bytes
    allowed = min([most, *(limit for limit in before if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _exit_with_error(line: str) -> None:
    print(f"error: the query {line}", file=sys.stderr, flush=True)
    os._exit(1)
