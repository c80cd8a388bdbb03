# ruff: noqa: E501
"""What an answer may use up: files, time, memory of the kernel. Every limit is met at small size."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from convbench.sandbox import CallOutcome, Limits, agree, run_calls
from convbench.sandbox.wall import SCRATCH_FILES
from tests.helpers.cli import ROOT
from tests.helpers.walls import WALLS, limits_of
from tests.support.exhaustive import every_nth


@pytest.fixture(params=WALLS)
def limits(request: pytest.FixtureRequest) -> Limits:
    return replace(limits_of(request.param), seconds=2.0, slack=10.0)


def one(code: str, limits: Limits) -> CallOutcome:
    return run_calls([code], ["f()"], limits)[0]


def count(attempt: str, most: int, setup: str = "") -> str:
    """Code that repeats an attempt until it is refused, and returns how often it was not."""
    return f"""
import os
{setup}
def f():
    for i in range({most}):
        try: {attempt}
        except OSError: return i
    return {most}
"""


CREATIONS = {
    "files": "os.close(os.open(f'/tmp/{i}', os.O_CREAT | os.O_WRONLY))",
    "folders": "os.mkdir(f'/tmp/{i}')",
    "depth": "os.mkdir('d'); os.chdir('d')",
    "symlinks": "os.symlink('x', f'/tmp/{i}')",
    "long symlinks": "os.symlink('x' * 3000, f'/tmp/{i}')",
    "hard links": "os.link('/tmp/one', f'/tmp/{i}')",
    "renamed": "open('/tmp/a', 'w').close(); os.rename('/tmp/a', f'/tmp/{i}')",
}


@pytest.mark.parametrize("kind", CREATIONS)
def test_creations_are_capped(limits: Limits, kind: str) -> None:
    """Empty files take nothing of the scratch folder's size, and 1.2 KB each of the kernel's."""
    setup = "try: open('/tmp/one', 'w').close()\nexcept OSError: pass"
    made = one(count(CREATIONS[kind], 2 * SCRATCH_FILES, setup), limits).value
    assert made == 0 if limits.kind == "landlock" else 100 < made <= SCRATCH_FILES


HELD = {
    "open files": ("kept.append(os.open('/dev/null', 0))", 64),
    "pipes": ("kept.append(os.pipe())", 64),
    "events": ("kept.append(os.eventfd(0))", 64),
    "epolls": ("kept.append(__import__('select').epoll())", 64),
    "sockets": ("kept.append(__import__('socket').socketpair())", 64),
    "timers": ("timer(i)", 256),
}
TIMER = """
import ctypes
kept, libc = [], ctypes.CDLL(None, use_errno=True)
def timer(i):
    if libc.syscall(222, 1, None, ctypes.byref(ctypes.c_int())): raise OSError
"""


@pytest.mark.parametrize("kind", HELD)
def test_what_is_held_is_capped(limits: Limits, kind: str) -> None:
    if kind == "timers" and platform.machine() != "x86_64":
        pytest.skip("a number of x86_64")
    attempt, most = HELD[kind]
    made = one(count(attempt, 1000, TIMER), limits).value
    assert 0 < made <= most


REFUSED = {
    "memfd": "os.memfd_create('x')",
    "fifo": "os.mkfifo('/tmp/fifo')",
    "socket file": "__import__('socket').socket(1).bind('/tmp/socket')",
    "fork": "os.fork()",
    "lock": "__import__('fcntl').lockf(os.open('/dev/null', 0), 1, 1, 5)",
    "huge argv": "os.execv('/proc/self/exe', ['x' * 100_000] * 15)",
    "itself again": "os.execv(__import__('sys').executable, ['python', '-c', ''])",
    "extended attribute": "os.setxattr('/tmp', 'user.x', b'x')",
    "shmget": "call(29, 0, 1 << 20, 0o1777)",
    "semget": "call(64, 0, 100, 0o1777)",
    "msgget": "call(68, 0, 0o1777)",
    "mq_open": "call(240, b'x', 0o102, 0o600, None)",
    "inotify": "call(253)",
    "inotify1": "call(294, 0)",
    "fanotify": "call(300, 0, 0)",
    "add_key": "call(248, b'user', b'x', b'y', 1, -3)",
    "keyctl": "call(250, 0, -3, 1)",
    "io_uring": "call(425, 8, bytes(120))",
    "userfaultfd": "call(323, 0)",
    "perf": "call(298, bytes(120), 0, -1, -1, 0)",
    "memfd_secret": "call(447, 0)",
    "mlock": "call(149, 0, 1 << 20)",
    "mount": "call(165, None, b'/tmp', None, 32, b'nr_inodes=0')",
    "remount by the new way": "call(442, -100, b'/tmp', 0, bytes(32), 32)",
    "vmsplice": "call(278, 1, None, 0, 0)",
    "sendmsg": "call(46, 0, None, 0)",
    "setuid": "call(105, 0)",
}
CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    if libc.syscall(number, *arguments) < 0: raise OSError(ctypes.get_errno(), "refused")
def tried(attempt):
    try: attempt()
    except OSError as error: return error.errno
    return 0
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
def test_stores_of_the_kernel_are_shut(limits: Limits) -> None:
    tries = ", ".join(f"{kind!r}: tried(lambda: {attempt})" for kind, attempt in REFUSED.items())
    found = one(CALL + f"def f(): return {{{tries}}}", limits)
    assert found.ended == "value", found
    errnos = {pair[1][0]: pair[1][1] for pair in found.value[1]}
    assert set(errnos) == set(REFUSED)
    refused = {1, 2, 13, 38} if limits.kind == "landlock" else {1, 2, 38}
    assert {kind: errno for kind, errno in errnos.items() if errno not in refused} == {}


def test_pipes_and_sockets_hold_little(limits: Limits) -> None:
    """The kernel keeps what is written and not read: 64 open files bound it."""
    code = """
import fcntl, os, socket
def fill(fd):
    total = 0
    os.set_blocking(fd, False)
    try:
        while True: total += os.write(fd, bytes(4096))
    except OSError: return total
def f():
    total, kept = 0, []
    try:
        while True:
            read, write = os.pipe()
            kept.append(read)
            try: fcntl.fcntl(write, 1031, 1 << 20)
            except OSError: pass
            total += fill(write)
    except OSError: pass
    for fd in kept: os.close(fd)
    return total
"""
    assert 0 < one(code, limits).value <= 32 << 20


def test_threads_are_capped(limits: Limits) -> None:
    code = """
import threading
stop = threading.Event()
def f():
    threading.stack_size(1 << 16)
    for i in range(200):
        try: threading.Thread(target=stop.wait, daemon=True).start()
        except RuntimeError: return i
    return 200
"""
    found = one(code, replace(limits, memory_mb=4096))
    if limits.kind == "bubblewrap":
        assert 0 < found.value <= 64


FORGED = {
    "in time for each": "time.sleep(1); os.write(fd, b'[%d, {\"value\": 0}]\\n' % i)",
    "byte by byte": "time.sleep(0.05); os.write(fd, b'[')",
    "blank lines": "time.sleep(1); os.write(fd, b'\\n')",
    "mostly long": "time.sleep(0.05); os.write(fd, b' ' * 1000)",
    "nothing": "time.sleep(1)",
}


@pytest.mark.parametrize("kind", every_nth(2, FORGED))
def test_what_is_told_holds_no_slot(kind: str) -> None:
    """All calls of a grading have one deadline, whatever comes through the pipe."""
    limits = replace(limits_of("bubblewrap"), seconds=0.1, slack=1.0)
    code = f"""
import os, signal, time
def f():
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for i in range(1000):
        for fd in (3,):
            {FORGED[kind]}
    return 42
"""
    calls = ["f()"] * 6
    began = time.monotonic()
    found = run_calls([code], calls, limits)
    took = time.monotonic() - began
    assert limits.wall_seconds(6) == pytest.approx(2.2)
    assert took < limits.wall_seconds(6) + 40, "starting takes its time on a busy machine"
    assert len(found) == 6
    assert not any(agree(outcome, CallOutcome("value", 42)) for outcome in found)


def test_a_slow_test_takes_nothing_from_those_before() -> None:
    limits = replace(limits_of("bubblewrap"), seconds=0.1, slack=4.0)
    code = """
import signal, time
def fine(): return 42
def slow():
    signal.signal(signal.SIGALRM, signal.SIG_IGN); time.sleep(1000)
"""
    found = run_calls([code], ["fine()", "fine()", "slow()", "fine()"], limits)
    assert [outcome.ended for outcome in found] == ["value", "value", "time", "time"]


REAPER = """
import ctypes, json, os, sys, time
from pathlib import Path
from convbench.sandbox import Limits, run_calls
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # who adopts orphans, as process 1 of a container does
code = '''
import os, threading, time
def fine(): return 42
def gone(): os._exit(0)
def late(): threading.Thread(target=time.sleep, args=(1000,)).start(); return 1
def killed(): os.write(3, b"]\\\\n"); time.sleep(1000)
'''
limits = Limits(seconds=0.2, slack=1.0, memory_mb=256, kind=sys.argv[1])
for call in ("fine()", "gone()", "late()", "killed()"):
    run_calls([code], [call], limits)
def children():
    found = {}
    for task in Path("/proc/self/task").glob("*/children"):
        try: pids = task.read_text().split()
        except OSError: continue
        for child in pids:
            try: found[child] = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
            except OSError: pass
    return found
until = time.monotonic() + 60
while children() and time.monotonic() < until:
    time.sleep(0.1)
print(json.dumps(children()))
"""


def test_no_zombies_where_we_adopt_orphans(limits: Limits) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REAPER, limits.kind],
        cwd=ROOT, capture_output=True, text=True, timeout=220, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
