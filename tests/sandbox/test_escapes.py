# ruff: noqa: E501
"""Ways out that need no bug: calls that walls forget. Each is tried for real, none gets out."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.errors import MissingDependency, RunError
from convbench.sandbox import CallOutcome, Limits, agree, run_calls, seccomp
from convbench.sandbox import boundary as stand
from convbench.util.guard import iter_descendants
from tests.helpers.cli import ROOT
from tests.helpers.sandbox import judged, needs_wall
from tests.helpers.walls import WALLS, limits_of

REFERENCE = CallOutcome("value", 42)


TRY = """
def done():
    found = []
    for number, attempt in enumerate(tries):
        try: attempt(); found.append(number)
        except OSError: pass
    return found
"""
"""Which of a list of `tries` the system did not refuse."""


@pytest.fixture(params=WALLS)
def limits(request: pytest.FixtureRequest) -> Limits:
    return replace(limits_of(request.param), seconds=1.0)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of the same user."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    yield process
    process.kill()
    process.wait()


def test_no_file_of_the_host_is_changed(limits: Limits, tmp_path: Path) -> None:
    target = tmp_path / "mine"
    target.write_text("whole")
    target.chmod(0o666)
    os.utime(target, (10**9, 10**9))
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)  # so that only the walls are in the way
    code = f"""
import os
path = {str(target)!r}
tries = [
    lambda: os.chmod(path, 0o777), lambda: os.chown(path, 1, 1), lambda: os.utime(path, (1, 1)),
    lambda: os.setxattr(path, "user.x", b"1"), lambda: os.truncate(path, 0), lambda: os.unlink(path),
    lambda: os.rename(path, path + "2"), lambda: os.link(path, "/tmp/mine"),
    lambda: os.open(path, os.O_RDONLY | os.O_TRUNC), lambda: os.open(path, os.O_WRONLY),
    lambda: os.open(os.path.dirname(path), os.O_TMPFILE | os.O_RDWR),
    lambda: os.mkdir(path + "3"), lambda: os.mkfifo(path + "4"), lambda: os.mknod("/tmp/dev", 0o20666, 0x101),
]
"""
    assert run_calls([code + TRY], ["done()"], limits)[0].value == ["l", []]
    seen = target.stat()
    assert (target.read_text(), seen.st_mode & 0o777, seen.st_mtime) == ("whole", 0o666, 10**9)
    assert os.listxattr(target) == []
    assert list(tmp_path.iterdir()) == [target]


def test_no_other_process_is_touched(
    limits: Limits, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    pid = sleeper.pid
    before = (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid))
    code = f"""
import fcntl, os, signal, socket, struct
pid = {pid}
def own(call):
    one, two = socket.socketpair()
    call(one.fileno())
    fcntl.fcntl(one, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) | os.O_ASYNC)
    two.send(b"x")
tries = [
    lambda: os.kill(pid, signal.SIGKILL), lambda: os.killpg(pid, signal.SIGKILL),
    lambda: os.setpriority(os.PRIO_PROCESS, pid, 5), lambda: os.sched_setaffinity(pid, {{0}}),
    lambda: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)), lambda: os.pidfd_open(pid),
    lambda: __import__("resource").prlimit(pid, 0, (1, 1)),
    lambda: own(lambda fd: fcntl.fcntl(fd, fcntl.F_SETOWN, pid)),
    lambda: own(lambda fd: fcntl.ioctl(fd, 0x8901, struct.pack("i", pid))),  # FIOSETOWN
]
"""
    assert run_calls([code + TRY], ["done()"], limits)[0].value == ["l", []]
    assert sleeper.poll() is None
    assert (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)) == before


def test_no_datagram_leaves(limits: Limits, tmp_path: Path) -> None:
    place = tmp_path / "heard"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(place))
        place.chmod(0o777)
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o011)
        server.settimeout(0.5)
        code = f"""
import socket
def f(kind):
    socket.socketpair(socket.AF_UNIX, kind)[0].sendto(b"out", {str(place)!r}); return 42
"""
        calls = [
            f"f({int(kind)})"
            for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM)
        ]
        assert [o.ended for o in run_calls([code], calls, limits)] == ["raised"] * 3
        with pytest.raises(TimeoutError):
            server.recv(10)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
def test_every_call_that_is_not_listed_is_refused(limits: Limits) -> None:
    tables = seccomp._ANYWHERE + (
        "" if limits.kind == "landlock" else f", {seccomp._IN_NAMESPACES}"
    )
    listed = set(seccomp.call_numbers(tables, 1).values())
    probes = (
        335,
        336,
    )  # the kernel lets these pass every filter and ends a process that calls them
    others = [n for n in range(600) if n not in listed and n not in probes]
    assert len(others) > 400
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def f():
    done = []
    for number in {others}:
        if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6) != -1 or ctypes.get_errno() not in (1, 38):
            done.append(number)
    return done
"""
    assert run_calls([code], ["f()"], limits)[0].value == ["l", []]


def test_nothing_is_inherited_and_no_privilege_is_left(limits: Limits) -> None:
    code = """
import os, stat
def files():
    kinds = []
    for fd in range(1024):
        try: kinds.append(stat.S_IFMT(os.fstat(fd).st_mode))
        except OSError: pass
    return [kinds.count(stat.S_IFIFO), sum(kind not in (stat.S_IFIFO, stat.S_IFCHR) for kind in kinds)]
def root():
    done = []
    for call in (lambda: os.setuid(0), lambda: os.seteuid(0), lambda: os.setresuid(0, 0, 0), lambda: os.chroot("/")):
        try: call(); done.append(call)
        except OSError: pass
    return [os.getuid() == 0, os.geteuid() == 0, os.getgroups(), len(done)]
"""
    files, root = run_calls([code], ["files()", "root()"], limits)
    assert files.value == ["l", [1, 0]], "the channel and /dev/null"
    assert root.value == ["l", [False, False, ["l", []], 0]] or os.getuid() != 0


def test_threads_are_counted(limits: Limits) -> None:
    if limits.kind == "landlock" and os.getuid() != 0:
        pytest.skip("the kernel counts the user's other threads too")
    code = """
import threading, time
threading.stack_size(32768)
def f():
    started = 0
    try:
        for _ in range(5000):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); started += 1
    except RuntimeError:
        pass
    return started
"""
    found = run_calls([code], ["f()"], replace(limits, seconds=5))[0]
    assert found.ended == "value", found
    assert 10 < found.value < 64


def test_packages_lie_hidden_but_those_asked_for(limits: Limits) -> None:
    folder = str(Path(pytest.__file__).parents[1])
    code = f"""
import sys
def f(name):
    sys.path.insert(0, {folder!r})
    return __import__(name).__name__
def read(): return open({pytest.__file__!r}).read()
"""
    calls = ["f('pytest')", "f('pydantic')", "read()", "f('dateutil.parser')"]
    found = run_calls(
        [code], calls, replace(limits, seconds=5, memory_mb=768, modules=("dateutil",))
    )
    assert [o.ended for o in found] == ["raised", "raised", "raised", "value"], found
    assert found[0].missing == "pytest"


def test_asyncio_works(limits: Limits) -> None:
    code = "import asyncio\nasync def g(): await asyncio.sleep(0.01); return 42\ndef f(): return asyncio.run(g())"
    assert run_calls([code], ["f()"], replace(limits, seconds=3))[0].value == 42


def test_values_that_lie(limits: Limits) -> None:
    code = """
import os, sys
class Reduced:
    def __reduce__(self): return os._exit, (0,)
class Int:
    __class__ = property(lambda self: int)
class Table(dict):
    def items(self): return [("a", 42)]
    def __iter__(self): return iter([42])
class Text(str):
    def __str__(self): return "42"
    def __repr__(self): os._exit(0)
class Slow:
    def __getattribute__(self, name):
        while True: pass
class Endless:
    def __iter__(self): return self
    def __next__(self): return 1
    def __len__(self): return 1
class Meta(type):
    def __instancecheck__(cls, other): return True
    __name__ = property(lambda cls: "x" * 10**7)
class Named(metaclass=Meta): pass
class Gone:
    def __del__(self):
        while True: pass
class Raises(Exception):
    def __str__(self): raise SystemExit
def cyclic():
    found = []; found.append(found); return found
def wide():
    found = []
    for _ in range(60): found = [found, found]
    return found
def raising(): raise Raises
def loop_back():
    try: raise ValueError("\\ud800\\x00\\x1b[2J")
    except ValueError as error: error.__cause__ = error; raise
def tracer():
    sys.settrace(lambda *args: tracer); sys.setprofile(lambda *args: os._exit(0)); return 1
def blind():
    sys._getframe(1).f_globals["_json"] = None; return 1
def builtin():
    import builtins
    builtins.isinstance = lambda *args: 1 / 0; return [1]
"""
    calls = ["Reduced()", "Int()", "Table()", "Text()", "Slow()", "Endless()", "Named()", "Gone()",
             "cyclic()", "wide()", "raising()", "loop_back()", "tracer()", "blind()", "builtin()"]  # fmt: skip
    for call in calls:
        found = run_calls([code + "\ndef fine(): return 42"], [call, "fine()"], limits)
        assert not agree(found[0], REFERENCE), call
        json.dumps(found[0].text, ensure_ascii=False).encode()  # can be stored


@needs_wall
def test_an_answer_cannot_find_what_is_expected() -> None:
    """The reference's outputs and its code never come into the answer's process."""
    hunt = """I WANT TO ANSWER:
import gc, sys
def add(a, b):
    found, frame = [], sys._getframe()
    while frame:
        found.append(repr(frame.f_locals)); frame = frame.f_back
    found += [item for item in gc.get_objects() if isinstance(item, str)]
    found += [repr(item) for item in gc.get_objects() if isinstance(item, (dict, list, tuple)) and len(item) < 1000]
    secret = "hidden.sentinel".replace(".", "")
    return secret if any(secret in text for text in found) else "nothing"
"""
    secret = "def add(a, b):\n    return 'hiddensentinel'"
    assert judged(hunt, reference=secret).scores["overall"] == 0
    told = judged("I WANT TO ANSWER:\n" + secret, reference=secret)
    assert told.scores["overall"] == 1, "the test can succeed"


@needs_wall
def test_what_an_answer_raises_can_be_stored_and_shown() -> None:
    verdict = judged('I WANT TO ANSWER:\ndef add(a, b): raise ValueError("\\ud800\\x1b[2J\\n")')
    assert list(verdict.details["reasons"]) == [r"raised ValueError: \ud800\x1b[2J\n"]
    verdict.model_dump_json()


def test_a_sandbox_ends_with_the_program_that_started_it(limits: Limits) -> None:
    code = "def f():\n  import signal, time\n  signal.setitimer(signal.ITIMER_REAL, 0)\n  time.sleep(300)"
    script = (
        "from convbench.sandbox import Limits, run_calls\n"
        f"print('go', flush=True); run_calls([{code!r}], ['f()'], Limits(seconds=50, kind={limits.kind!r}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        inside: set[int] = set()
        until = time.monotonic() + 60
        while len(inside) < (3 if limits.kind == "bubblewrap" else 1) and time.monotonic() < until:
            inside = set(iter_descendants(process.pid))
            time.sleep(0.2)
        assert inside
        time.sleep(1)
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 60
    while (left := {pid for pid in inside if _alive(pid)}) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_a_wall_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("convbench.sandbox.grading")
    monkeypatch.setattr(module, "_stands", lambda wall: False)
    stand.cache_clear()
    try:
        mark = tmp_path / "ran"
        with pytest.raises(MissingDependency, match="apt-get install bubblewrap"):
            run_calls([f"open({str(mark)!r}, 'w')"], ["1"], Limits(kind="auto"))
        with pytest.raises(RunError, match=r"judge unit-tests: .*apt-get install bubblewrap"):
            asyncio.run(_score(f"open({str(mark)!r}, 'w')"))
        assert not mark.exists()
    finally:
        stand.cache_clear()


def test_a_kernel_without_landlock_gives_no_such_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where a process would start behind it."""
    module = importlib.import_module("convbench.sandbox.grading")
    monkeypatch.setattr(module.confine, "version", lambda: 0)
    monkeypatch.setattr(module, "filter_program", lambda *, alone: b"")
    monkeypatch.setattr(module, "starts", lambda wall, limits: True)
    assert not module._stands(module.Boundary("landlock", sys.executable, False))


async def _score(answer: str) -> None:
    from convbench.judges.resolve import resolve_judge
    from convbench.judges.unit_tests import score
    from tests.helpers.sandbox import example, protocol, talk

    asked = example(reference=answer, tests='{"a": "f()"}')
    await score(
        talk(("assistant", answer)), asked, protocol(), spec=resolve_judge("unit-tests").spec
    )
