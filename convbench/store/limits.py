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


class NoRoom(QueryError):
    """A query needs more memory than it may use."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much memory records may take."""

    large: int
    """Bytes of records beyond which they are spilled to temporary files."""
    held_mb: int
    """MiB of spilled records that stay in memory."""


ONCE = Room(64 << 20, 256)
"""For a single query."""
OFTEN = Room(256 << 20, 512)
"""For the viewer, which runs many queries."""
SPILLED = 8
"""Largest number of bytes of temporary files for a byte of records."""


def spill(connection: DuckDBPyConnection, size: int, room: Room = ONCE) -> bool:
    """Let DuckDB spill records of `size` bytes to temporary files if they exceed the limit. Return
    True if it may. DuckDB removes its files when it is closed."""
    import duckdb

    # The bar would be drawn on stdout even without a terminal. In a notebook without ipywidgets
    # there is none, and DuckDB refuses the setting.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    if size <= SMALL:
        connection.execute("SET threads = 1")
    if size <= room.large:
        return False
    from convbench.store.scratch import scratch

    place = str(scratch()).replace("'", "''")
    connection.execute(f"SET temp_directory = '{place}'")
    connection.execute(f"SET max_temp_directory_size = '{SPILLED * max(size, SMALL)}B'")
    connection.execute(f"SET memory_limit = '{room.held_mb}MiB'")
    return True


def seal_memory(connection: DuckDBPyConnection) -> None:
    """Limit the memory of a connection whose runs are loaded, and forbid spilling to the disk."""
    connection.execute("SET temp_directory = ''")
    connection.execute(f"SET memory_limit = '{MEMORY_MB + 4 * _used_mb(connection)}MiB'")


@contextlib.contextmanager
def bounded(
    connection: DuckDBPyConnection, seconds: float, more: str, *, hard: bool = False
) -> Iterator[None]:
    """Run the body of `with` within limits. Raises QueryError after `seconds`, and a subclass of it
    if memory runs out; both messages end with `advice`.

    With `exit_on_timeout` the address space is limited too, and this process ends itself (exit code
    1) if DuckDB cannot be interrupted: for a program that does nothing else.
    """
    import duckdb

    line = f"took longer than {seconds:g} s; {more}"
    ends = [threading.Timer(seconds, connection.interrupt)]
    if hard:
        ends.append(threading.Timer(seconds + GRACE_S, _end, [line]))
    for timer in ends:
        timer.daemon = True
        timer.start()
    most = (MEMORY_MB * 3 // 2 + 4 * _used_mb(connection)) << 20 if hard else 0
    space = address_space(most) if hard else contextlib.nullcontext()
    try:
        with interruptible(), space:
            yield
    except duckdb.InterruptException:
        raise QueryError(line) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise NoRoom(
            f"needs more than {MEMORY_MB:,} MiB beside the runs' own tables; {more}"
        ) from None
    finally:
        for timer in ends:
            timer.cancel()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for Ctrl-C in the body of `with`: DuckDB makes it a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None


def _used_mb(connection: DuckDBPyConnection) -> int:
    found = connection.execute("SELECT sum(memory_usage_bytes) FROM duckdb_memory()").fetchall()
    return int(found[0][0] or 0) >> 20


@contextlib.contextmanager
def address_space(more: int) -> Iterator[None]:
    """Limit the address space of this process to what it has now and `extra_bytes`, beyond which it
    gets a MemoryError. Do nothing on systems without /proc."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            has = int(file.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = has + more
    allowed = min([most, *(limit for limit in before if limit != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _end(line: str) -> None:
    print(f"error: the query {line}", file=sys.stderr, flush=True)
    os._exit(1)
