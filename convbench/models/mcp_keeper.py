"""The keeper of one tool server: started instead of it, ends it and all that it started.

It stands alone: standard library only. Lines go through it in both directions, so that what the
server says is bounded; it ends with the process that started it, however that ended. Why it is
over is the keeper's last word on stderr.

    python -I -S mcp_keeper.py PARENT COMMAND...
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LINE = 2 << 20
"""Bytes of the longest line that is passed on."""
FLOOD = 8 << 20
"""Bytes that the server may say between two lines that it is told."""
JUNK = 100
"""Lines that are no messages (a banner, a print) that are passed over."""
TAIL = 2000
"""Bytes of its stderr that are kept."""
GRACE_S = 1.0
"""Seconds that it gets to end once its stdin is closed."""
ADOPTS, DIES_WITH = 36, 1
"""What prctl calls them: orphans below us become our children; a signal when our parent ends."""


class Keeper:
    """The server and what is known of it."""

    def __init__(self, command: list[str]) -> None:
        self.over = threading.Event()
        self.why = ""
        self.tail = b""
        self.said = self.junk = 0
        self.spoke = False
        """Whether it has said a message."""
        self.server = subprocess.Popen(  # noqa: S603 - the user's own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def end(self, why: str) -> None:
        """Say once why it is over."""
        if not self.over.is_set():
            self.why = why
            self.over.set()

    def told(self) -> None:
        """Pass on what the server is told, until there is no more."""
        assert self.server.stdin is not None
        with contextlib.suppress(OSError):
            while chunk := os.read(0, 1 << 16):
                self.said = 0
                with contextlib.suppress(OSError):  # it no longer listens: `says` tells its end
                    self.server.stdin.write(chunk)
                    self.server.stdin.flush()
        with contextlib.suppress(OSError):
            self.server.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(GRACE_S)
        self.end("")

    def says(self) -> None:
        """Pass on the lines of the server that may be messages."""
        assert self.server.stdout is not None
        with contextlib.suppress(OSError):
            while line := self.server.stdout.readline(LINE + 1):
                self.said += len(line)
                if len(line) > LINE:
                    return self.end(f"said a line of more than {LINE >> 20} MiB")
                if self.said > FLOOD:
                    return self.end(f"said more than {FLOOD >> 20} MiB unasked")
                if _is_message(line):
                    self.spoke = True
                    _write(line)
                    continue
                self.junk += 1
                if self.junk > JUNK:
                    return self.end(f"said over {JUNK} lines that are no messages")
        self.end(f"ended with exit code {_code(self.server)}")
        return None

    def mutters(self) -> None:
        """Keep the end of what it writes to stderr."""
        assert self.server.stderr is not None
        with contextlib.suppress(OSError):
            while chunk := os.read(self.server.stderr.fileno(), 1 << 16):
                self.tail = (self.tail + chunk)[-TAIL:]


def below(pid: int) -> Iterator[int]:
    """Yield the numbers of a process's children, theirs and so on."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    yield int(child)
                    yield from below(int(child))


def end_all() -> None:
    """End all that is below us; what has orphaned itself has become our own child."""
    until = time.monotonic() + 5
    while (left := set(below(os.getpid()))) and time.monotonic() < until:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _is_message(line: bytes) -> bool:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "jsonrpc" in found


def _write(line: bytes) -> None:
    while line:
        line = line[os.write(1, line) :]


def _code(server: subprocess.Popen[bytes]) -> int | None:
    try:
        return server.wait(GRACE_S)
    except subprocess.TimeoutExpired:  # it closed its stdout and goes on
        return None


def _bind(parent: int) -> None:
    """Adopt orphans, and end with the parent, where the system knows how."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.prctl(ADOPTS, 1, 0, 0, 0)
        libc.prctl(DIES_WITH, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we were bound to it
        raise SystemExit(1)


def main() -> None:
    """Keep the server until it or who started us is done with it."""
    _bind(int(sys.argv.pop(1)))
    try:
        keeper = Keeper(sys.argv[1:])
    except OSError as error:
        sys.exit(f"cannot be started: {error.strerror}: {sys.argv[1]}")
    signal.signal(signal.SIGTERM, lambda *_: keeper.end(""))
    threads = [
        threading.Thread(target=work, daemon=True)
        for work in (keeper.told, keeper.says, keeper.mutters)
    ]
    for thread in threads:
        thread.start()
    while not keeper.over.wait(0.2):  # so that a signal is heard
        pass
    end_all()
    threads[-1].join(GRACE_S)  # its last words are still in the pipe
    words = [] if keeper.spoke else keeper.tail.decode("utf-8", "replace").split("\n")
    words = [one.strip() for one in words if one.strip()][-1:]  # why it never began
    sys.stderr.write(": ".join(filter(None, [keeper.why, *words])))
    sys.stderr.flush()
    os._exit(0)  # a thread may still wait for a pipe


if __name__ == "__main__":
    main()
