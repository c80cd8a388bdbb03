"""Run child processes that do not outlive us, however we end, even by SIGKILL.

`guard_command` returns the command line of this file as a program, which runs a command and ends it
with all its descendants, also those that left their parent or process group: orphaned descendants
are reparented to this program (Linux). If this program is killed itself, the command dies at once.
`start_worker` starts a process of ours, which binds itself by `serve_parent`.

Standard library only: any interpreter can run it by its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO, Any, BinaryIO

PROGRAM = (sys.executable, "-I", "-S", __file__)
"""This file as a program, without the packages around it."""
GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL, and the longest wait for killed processes to be gone."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""Options of Linux's prctl(2)."""
WATCHES, TALKS = "--watches-stdin", "--talks-to"
"""First argument of the program."""


def guard_command(command: Sequence[str], *, scratch: str | None = None) -> list[str]:
    """Return the command line that runs a command under a guard; start it with a pipe as stdin.

    The command is ended (SIGTERM, then SIGKILL) when that pipe closes or the guard gets a signal.
    With a `scratch` folder, which is removed at the end, the command itself uses stdin and stdout;
    the system then signals the guard when the thread that started it is gone (Linux), and all
    processes are ended by SIGKILL soon after.
    """
    how = [WATCHES] if scratch is None else [TALKS, str(os.getpid()), scratch]
    return [*PROGRAM, *how, *command]


def die_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have the system send signal `number` to this process when the thread that started it is gone;
    do nothing on systems other than Linux.

    `parent` is the expected parent's process id: if another process is the parent already, this
    process kills itself at once.
    """
    _prctl(PR_SET_PDEATHSIG, number)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def start_worker(
    command: Sequence[str], environment: Mapping[str, str], stderr: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Return a started program of ours whose stdin and stdout are pipes to us, in a session of its
    own.

    `environment` is added to our own, and convbench's folder to its PYTHONPATH. Its stderr goes to
    the file `stderr`.
    """
    parent = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [parent, os.environ.get("PYTHONPATH")]
    return subprocess.Popen(  # noqa: S603 - our own program
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        start_new_session=True,  # Ctrl-C is for us: calls in flight end first
    )


def serve_parent() -> BinaryIO:
    """Bind this worker process to its parent and return the stdout that the parent reads.

    What libraries print goes to stderr instead."""
    die_with_parent()
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def last_lines(stderr: IO[bytes]) -> list[str]:
    """Return the lines in the last 20,000 bytes of a file, stripped and without blank ones; its
    position is moved. The first line may be cut."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - 20_000))
    lines = stderr.read().decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def main() -> int:
    """Run the program with the arguments of the command line and return its exit code."""
    how, *words = sys.argv[1:]
    if how == WATCHES:
        return run_guard(words, None)
    parent, scratch, *words = words
    die_with_parent(signal.SIGTERM, int(parent))
    return run_guard(words, scratch)


def _start_child(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Return a started command that dies with us; its orphans are reparented to us."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    bind = partial(die_with_parent, parent=os.getpid())
    child: subprocess.Popen[bytes] = subprocess.Popen(command, preexec_fn=bind, **options)  # noqa: S603 - the caller's own
    return child


def run_guard(command: Sequence[str], scratch: str | None) -> int:
    """Run a command under the guard; return its exit code, or 128 + N after signal N."""
    stdin = subprocess.DEVNULL if scratch is None else None
    child = _start_child(command, stdin=stdin, start_new_session=True)
    ending, grace_s = threading.Event(), GRACE_S if scratch is None else 0.0

    def end_child(*_: object) -> None:
        if not ending.is_set():
            ending.set()
            threading.Thread(target=end_tree, args=(child, grace_s), daemon=True).start()

    def watch_stdin() -> None:
        while os.read(0, 4096):
            pass
        end_child()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_child)
    if scratch is None:
        threading.Thread(target=watch_stdin, daemon=True).start()
    else:
        _let_go()
    code = child.wait()
    signal_group(child.pid, signal.SIGKILL)
    end_all()
    if scratch is not None:
        import shutil

        shutil.rmtree(scratch, ignore_errors=True)
    return code if code >= 0 else 128 - code


def _let_go() -> None:
    """Release stdin and stdout, so that the command and the parent notice each other's end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nothing, fd)


def end_tree(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """End the child and all descendants of this process: SIGTERM, then SIGKILL; wait at most
    `grace_s` seconds for the child after each."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        signal_group(child.pid, number)
        signal_below(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group; do nothing if it is gone or belongs to another user.

    A group is the only handle on descendants where there is no /proc.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def signal_below(number: int) -> None:
    """Send a signal to every descendant of this process."""
    for pid in [*iter_descendants(os.getpid())] or find_descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end_all() -> None:
    """Kill all descendants and wait until none is left, at most GRACE_S seconds.

    A process born meanwhile is reparented to us too; none is left to the parent as a zombie."""
    until = time.monotonic() + GRACE_S
    with contextlib.suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                signal_below(signal.SIGKILL)
                time.sleep(0.01)


def find_descendants(root: int) -> list[int]:
    """Return the ids of a process's living descendants, in no order and without zombies; empty if
    there is no /proc.

    It reads the state of every process of the machine, which is slow but works on kernels that do
    not list a task's children.
    """
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = _read_stat(int(name))[:2]
            if state not in "ZX":
                parents[int(name)] = int(parent)
    below_root: list[int] = []
    for pid in parents:
        at: int | None = pid
        while at is not None and at != root:
            at = parents.get(at)
        if at == root and pid != root:
            below_root.append(pid)
    return below_root


def iter_descendants(pid: int) -> Iterator[int]:
    """Yield the ids of a process's descendants, parents first, zombies included.

    It reads these processes alone and is cheap enough for ten calls a second; some kernels do not
    list a task's children, and then it yields nothing."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                for child in file.read().split():
                    yield int(child)
                    yield from iter_descendants(int(child))


def began_at(pid: int) -> str:
    """Return the start time of a process in clock ticks, as text; empty if there is no process."""
    with contextlib.suppress(OSError, IndexError):
        return _read_stat(pid)[19]
    return ""


def is_alive(pid: int) -> bool:
    """Return True if a process exists and is not a zombie."""
    try:
        return _read_stat(pid)[0] not in "ZX"
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)  # where there is no /proc
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _read_stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent and so on.

    Raises OSError if there is no such process."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
