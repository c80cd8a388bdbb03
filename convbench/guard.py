"""Run a command that must not outlive its parent: `python guard.py COMMAND ARG ...`.

The command and all that it starts are ended (SIGTERM, then SIGKILL) when stdin closes, which
happens however the parent dies, even by SIGKILL, or when this process is told to end. What left
its parent or its process group is found too: on Linux this process is who orphans fall to, and who
waits for them. If this process is killed itself, the command dies at once. Standard library only:
any interpreter can run it.

A command that talks to the parent has stdin and stdout for itself. Then the system says when the
thread that started this process is gone (Linux), and what runs is ended by SIGKILL at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL."""


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Of Linux's prctl(2)."""


TALKS = "--talks-to"
"""Before the parent's number, a scratch folder, and a command that has stdin and stdout itself."""


def guarded(command: Sequence[str], *, scratch: str | None = None) -> list[str]:
    """Return the command line under this guard; start it with a pipe as stdin. With a `scratch`
    folder, which is removed in the end, the command itself talks to the parent by that pipe."""
    talks = [] if scratch is None else [TALKS, str(os.getpid()), scratch]
    return [sys.executable, "-I", __file__, *talks, *command]


def main() -> int:
    """Run the command; return its exit code."""
    command, talks = sys.argv[1:], sys.argv[1] == TALKS
    if talks:
        _, parent, scratch, *command = command
        die_with_parent(signal.SIGTERM, int(parent))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    child = subprocess.Popen(  # noqa: S603 - the caller's own command
        command,
        stdin=None if talks else subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, parent=os.getpid()),
    )
    ending, grace_s = threading.Event(), 0.0 if talks else GRACE_S

    def end(*_: object) -> None:
        if not ending.is_set():
            ending.set()
            threading.Thread(target=stop, args=(child, grace_s), daemon=True).start()

    def watch() -> None:
        while os.read(0, 4096):
            pass
        end()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    if talks:
        _let_go()
    else:
        threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    _signal(child, signal.SIGKILL)
    _reap_orphans()
    if talks:
        shutil.rmtree(scratch, ignore_errors=True)
    return code if code >= 0 else 128 - code


def _let_go() -> None:
    """Hold stdin and stdout no longer, so that the command and the parent see each other's end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nothing, fd)


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have the system signal this process when the thread that started it is gone; Linux alone can.
    `parent`: its process, looked for in case it was gone before."""
    _prctl(PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def stop(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """End all that runs below, by force after a while."""
    _signal(child, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    _signal(child, signal.SIGKILL)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to the command's group and to every process below this one; SIGKILL until
    none is left, since one that is born meanwhile is missed."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
    for _ in range(100 if number == signal.SIGKILL else 1):
        below = descendants(os.getpid())
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        if not below:
            return
        if number == signal.SIGKILL:
            time.sleep(0.01)


def _reap_orphans() -> None:
    """Wait, for a while, for all that fell to this process: else they are zombies of the parent's
    where it adopts orphans."""
    until = time.monotonic() + GRACE_S
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """Return the living processes below one, as /proc shows them; none where there is no /proc."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{int(name)}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
            if state not in (b"Z", b"X"):
                parents[int(name)] = int(parent)
    found: list[int] = []
    for pid in parents:
        at: int | None = pid
        while at is not None and at != root:
            at = parents.get(at)
        if at == root and pid != root:
            found.append(pid)
    return found


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
