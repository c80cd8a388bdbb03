"""What a question may use: seconds, and memory beyond what the runs themselves take.

DuckDB gives up between two blocks of rows, so one huge value can hold it; the limit on address
space ends most of those, and a program that does nothing but ask (`hard`) ends itself.
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
"""Seconds a query may take, where nobody says otherwise."""
GRACE_S = 5.0
"""Seconds after the limit in which DuckDB must have given up, for a program that may end."""
MEMORY_MB = 2048
"""MiB a question may use beside the runs' own tables, of which it may hold three more copies."""

SMALL = 32 << 20
"""Bytes of records that one thread reads: each has buffers of its own."""


class NoRoom(QueryError):
    """A question needs more memory than it may have."""


@dataclass(frozen=True, slots=True)
class Room:
    """What records may hold of memory."""

    large: int
    """Bytes of records beyond which they lie in temporary files."""
    held_mb: int
    """MiB that is held of those."""


ONCE = Room(64 << 20, 256)
"""For a question that is asked once."""
OFTEN = Room(256 << 20, 512)
"""For a viewer, which is asked again and again."""
SPILLED = 8
"""Most bytes of temporary files for a byte of records."""


def spill(connection: DuckDBPyConnection, size: int, room: Room = ONCE) -> bool:
    """Have records of so many bytes kept in temporary files where there is no room for them; return
    whether they are. DuckDB removes its files when it is closed."""
    import duckdb

    # It would be drawn on stdout without a terminal too. A notebook without ipywidgets has none,
    # and there DuckDB refuses the setting.
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
    """Limit the connection's memory, its runs loaded, and keep it from spilling to the disk."""
    connection.execute("SET temp_directory = ''")
    connection.execute(f"SET memory_limit = '{MEMORY_MB + 4 * _used_mb(connection)}MiB'")


@contextlib.contextmanager
def bounded(
    connection: DuckDBPyConnection, seconds: float, more: str, *, hard: bool = False
) -> Iterator[None]:
    """Ask within limits; QueryError after `seconds`, NoRoom where memory runs out.

    `more` says how to get further. `hard`: this program does nothing else, so it ends itself
    (exit code 1) where DuckDB does not give up, and may be held to an address space.
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
    """Let Ctrl-C be what it is everywhere: DuckDB makes a RuntimeError of it."""
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
    """Hold this process to what it has and so many bytes more, where that can be told: beyond
    them it gets a MemoryError."""
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
