"""Run a command that must not outlive its parent: `python guard.py COMMAND ARG ...`.

The command runs in a process group of its own. It is ended (SIGTERM, then SIGKILL) when stdin
closes, which happens however the parent dies, even by SIGKILL, or when this process is told to
end. Standard library only: any interpreter can run it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL."""


def main() -> int:
    """Run the command; return its exit code."""
    command = sys.argv[1:]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603
    ending = threading.Event()

    def end(*_: object) -> None:
        if not ending.is_set():
            ending.set()
            threading.Thread(target=stop, args=(child,), daemon=True).start()

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    _signal(child, signal.SIGKILL)
    return code if code >= 0 else 128 - code


def stop(child: subprocess.Popen[bytes]) -> None:
    """End the whole group, by force after a while."""
    _signal(child, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_S)
    _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


if __name__ == "__main__":
    sys.exit(main())
