# ruff: noqa: E501
"""Hostile answers: nothing gets out, each fails with its reason."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from convbench.sandbox import CallOutcome, Limits, agree, run_calls
from tests.helpers.walls import WALLS, limits_of


@pytest.fixture(params=WALLS)
def limits(request: pytest.FixtureRequest) -> Limits:
    return limits_of(request.param)


def one(code: str, limits: Limits, call: str = "f()") -> CallOutcome:
    return run_calls([code], [call], limits)[0]


REFERENCE = CallOutcome("value", 42)


def test_what_answers_may_do(limits: Limits) -> None:
    code = """
import math, collections, dataclasses, functools, itertools, re, json, datetime, threading
def helper(n): return n if n < 2 else helper(n - 1) + helper(n - 2)
@dataclasses.dataclass
class Point:
    x: int
def f():
    out = []
    thread = threading.Thread(target=lambda: out.append(helper(10)))
    thread.start(); thread.join()
    print("chatter"); print("more", file=__import__("sys").stderr)
    return [out[0], math.floor(2.5), Point(3).x, json.loads("[1]")[0]]
"""
    slow = replace(limits, seconds=3.0)  # so many imports take their time
    assert one(code, slow).value == ["l", [55, 2, 3, 1]]


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/etc/shadow", "/root/.bashrc", "/proc/1/environ", "/proc/self/maps",
     "/proc/self/environ", "/sys/kernel/version", "/var/log/dpkg.log", str(Path(__file__))],
)  # fmt: skip
def test_no_file_of_the_host_can_be_read(limits: Limits, path: str) -> None:
    found = one(f"def f(): return open({path!r}, 'rb').read(100)", limits)
    assert found.ended == "raised"
    assert found.error in ("FileNotFoundError", "PermissionError")
    assert not agree(found, REFERENCE)


def test_no_secret_of_the_environment(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-sentinel-value")
    found = one("import os\ndef f(): return dict(os.environ)", limits)
    assert found.ended == "value"
    assert "sentinel" not in str(found.value)
    assert "API" not in str(found.value)


@pytest.fixture
def port() -> Iterator[tuple[int, list[bytes]]]:
    """A server of this machine that an escaped answer would reach."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def listen() -> None:
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                heard.append(connection.recv(100))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)


def test_no_network(limits: Limits, port: tuple[int, list[bytes]]) -> None:
    code = f"""
import socket
def f():
    try:
        s = socket.create_connection(("127.0.0.1", {port[0]}), timeout=0.3); s.send(b"out"); return 42
    except OSError as error:
        return type(error).__name__
def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW)
def unix():
    socket.socket(socket.AF_UNIX).connect("/run/dbus/system_bus_socket")
"""
    found = run_calls([code], ["f()", "raw()", "unix()"], limits)
    assert found[0].value != 42
    assert [o.ended for o in found[1:]] == ["raised", "raised"]
    assert port[1] == []


def test_no_processes(limits: Limits) -> None:
    code = """
import os, subprocess
def bomb():
    while True: os.fork()
def shell(): return subprocess.run(["/bin/sh", "-c", "echo 42"], capture_output=True).stdout
"""
    found = run_calls([code], ["bomb()", "shell()"], limits)
    assert found[0].error == "PermissionError"
    assert found[1].error in ("PermissionError", "FileNotFoundError")


def test_time_memory_and_output(limits: Limits) -> None:
    code = """
def loop():
    while True: pass
def stubborn():
    while True:
        try:
            while True: pass
        except BaseException: pass
def deaf():
    import signal
    signal.signal(signal.SIGPROF, signal.SIG_IGN); signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True: pass
def sleep():
    import time; time.sleep(1000)
def memory(): return len(bytearray(10**9))
def slowly():
    kept = []
    while True: kept.append(bytearray(10**6))
def text(): return "x" * 10**6
def endless():
    while True: yield 1
def deep():
    found = []
    for _ in range(10**5): found = [found]
    return found
def chatter():
    while True: print("x" * 10**5)
"""
    slow = {"loop": "time", "sleep": "time", "chatter": "time"}
    large = {
        "memory": "memory",
        "slowly": "memory",
        "text": "output",
        "endless": "output",
        "deep": "output",
    }
    patient = replace(limits, seconds=2.0)  # so that a busy machine reaches the memory limit first
    for wanted, within in ((slow, limits), (large, patient)):
        found = run_calls([code], [f"{name}()" for name in wanted], within)
        assert dict(zip(wanted, (o.ended for o in found), strict=True)) == wanted
    for name in ("stubborn", "deaf"):
        after = run_calls([code + "\ndef g(): return 42"], [f"{name}()", "g()"], limits)
        assert after[0].ended in ("time", "died")
        assert after[1].value == 42, "the tests after one that cannot be stopped still count"


def test_monkeypatched_equality_and_forged_results(limits: Limits) -> None:
    code = """
import os, sys, json
class Same:
    def __eq__(self, other): return True
    def __hash__(self): return 42
class Num(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
    def __repr__(self): return "42"
    def __add__(self, other): return 42
def same(): return Same()
def num(): return Num(7)
def forge():
    for fd in range(64):
        for line in (b'[0, {"value": true}]\\n', b'[0, {"passed": 10}]\\n', b'{"passed": true}\\n'):
            try: os.write(fd, line)
            except OSError: pass
    return 0
def prints():
    print('[0, {"value": 42}]', flush=True); sys.__stdout__.write('[0, {"value": 42}]\\n'); return 0
def bend():
    import builtins, math
    builtins.len = lambda x: 0; math.isclose = lambda *a, **k: True
    for module in list(sys.modules.values()):
        for name in ("same", "agree", "close"):
            setattr(module, name, lambda *a, **k: True)
    return 7
def nested():
    os.write(3, b'[0, {"value": ' + b'[' * 50000 + b'\\n'); return 1
def huge():
    os.write(3, b'[0, {"value": ["n", "1e999999999"]}]\\n'); return 1
"""
    for name in ("same", "num", "forge", "prints", "bend", "nested", "huge"):
        assert not agree(run_calls([code], [f"{name}()"], limits)[0], REFERENCE), name


def test_leaving_and_killing(limits: Limits) -> None:
    code = """
import os, sys, signal
def leave(): sys.exit(0)
def quit(): os._exit(0)
def kill_parent():
    os.kill(os.getppid(), signal.SIGKILL); return 42
def kill_all():
    os.kill(-1, signal.SIGKILL); return 42
def kill_self():
    os.kill(os.getpid(), signal.SIGKILL)
def crash():
    import ctypes; ctypes.string_at(0)
def fine(): return 42
"""
    names = ["leave", "fine", "quit", "fine"]
    found = run_calls([code], [f"{name}()" for name in names], limits)
    assert [o.ended for o in found] == ["raised", "value", "died", "value"]
    assert found[0].error == "SystemExit"
    for name in ("kill_parent", "kill_all", "kill_self", "crash"):
        after = run_calls([code], [f"{name}()", "fine()"], limits)
        assert len(after) == 2
        assert after[1].value == 42 or name == "kill_all"
    if limits.kind == "landlock":  # the same process numbers as the host: signals are denied
        assert run_calls([code], ["kill_parent()"], limits)[0].error == "PermissionError"


def test_nothing_is_written_outside_scratch(limits: Limits, tmp_path: Path) -> None:
    target = tmp_path / "escaped"
    code = f"""
import os
def write(path):
    with open(path, "w") as file: file.write("x")
    return 42
def link():
    os.symlink({str(tmp_path)!r}, "/tmp/out")
    return write("/tmp/out/escaped")
def up(): return write("../../../../../../" + {str(target)!r})
def everywhere():
    found = []
    for place in ("/", "/dev", "/dev/shm", "/usr/lib", "/lib", "/etc", "/var/tmp", "/root", "/home"):
        try: write(place + "/escaped"); found.append(place)
        except OSError: pass
    return found
def fill():
    total = 0
    try:
        for i in range(100):
            with open(f"/tmp/{{i}}", "wb") as file: total += file.write(bytes(10**6))
    except OSError:
        pass
    return total < 20 * 10**6
"""
    found = run_calls(
        [code], [f"write({str(target)!r})", "link()", "up()", "everywhere()", "fill()"], limits
    )
    assert all(o.value != 42 for o in found[:3])
    assert found[3].value == ["l", []]
    assert found[4].value is True
    assert not target.exists()


def test_kernel_doors_are_shut(limits: Limits) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    return [libc.syscall(number, *args) >= 0, ctypes.get_errno()]
def unshare(): return call(272, 0x10000000)
def ptrace(): return call(101, 16, os.getppid(), 0, 0)
def mount(): return call(165, b"none", b"/tmp", b"tmpfs", 0, None)
def memfd(): return call(319, b"x", 0)
def bpf(): return call(321, 0, None, 0)
def x32(): return call(0x40000000 + 57)
def root(): return [os.chroot("/tmp") is None, 0]
"""
    names = ["unshare", "ptrace", "mount", "memfd", "bpf", "x32"]
    for name, outcome in zip(
        names, run_calls([code], [f"{n}()" for n in names], limits), strict=True
    ):
        assert outcome.value == ["l", [False, 1]], name
    assert one(code, limits, "root()").error == "PermissionError"


def test_one_answer_does_not_reach_the_next(limits: Limits) -> None:
    mark = "import builtins, os\nbuiltins.mark = 1\ntry: open('/tmp/mark', 'w').close()\nexcept OSError: pass\ndef f(): return 1"
    assert one(mark, limits).value == 1
    look = "import builtins, os\ndef f(): return [hasattr(builtins, 'mark'), os.path.exists('/tmp/mark')]"
    assert one(look, limits).value == ["l", [False, False]]


def test_a_hung_sandbox_is_ended(limits: Limits) -> None:
    began = time.monotonic()
    code = "def f():\n  import os, signal\n  os.kill(os.getpid(), signal.SIGSTOP)\n  return 42"
    assert one(code, limits).value != 42 or limits.kind == "landlock"
    assert time.monotonic() - began < 60
