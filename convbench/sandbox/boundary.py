"""The wall around model-written code: bubblewrap where namespaces are to be had, else Landlock.

Neither needs root or a container daemon. Where neither works nothing is run: `boundary` raises
MissingDependency with the command that mends it.

Inside there is no network, no environment, no /proc, no process but the one, and no file but the
interpreter's own and the modules that were asked for, all read-only; with bubblewrap also a
scratch folder of limited size in memory (/tmp), with Landlock none.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from convbench.errors import MissingDependency
from convbench.sandbox import confine
from convbench.sandbox.seccomp import filter_program

SCRATCH_BYTES = 16 << 20
KINDS = ("bubblewrap", "landlock")
INSTALL = "apt-get install bubblewrap"
_CLEAN = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
          "HOME": "/tmp", "LANG": "C.UTF-8"}  # fmt: skip # noqa: S108 - inside
_PLAIN = (
    "-P", "-s", "-S", "-B", "-c", "import marshal, sys; exec(marshal.load(sys.stdin.buffer))",
)  # fmt: skip
"""No packages, no path of the caller's; the environment is ours, so that hashing is repeatable.
The program comes compiled: compiling takes longer than most tests."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A wall that was seen to stand on this machine."""

    kind: str
    """`bubblewrap` or `landlock`."""
    program: str
    """The interpreter that runs inside."""

    def start(self, modules: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start the program inside; it waits for its job on stdin."""
        if self.kind == "bubblewrap":
            return self._wrapped(modules)
        return self._popen([self.program, *_PLAIN], _CLEAN, ())

    def settings(self, modules: tuple[str, ...]) -> dict[str, Any] | None:
        """Return what the program inside must shut by itself; None where the wall stands."""
        if self.kind == "bubblewrap":
            return None
        found = packages(modules)
        return {
            "code": compiled("confine.py"),
            "read": [*_opened(self.program), *found, "/dev/null", "/dev/urandom"],
            "list": sorted({*map(os.path.dirname, found), *map(os.path.dirname, hidden())}),
            "filter": filter_program(alone=True),
        }

    def _wrapped(self, modules: tuple[str, ...]) -> subprocess.Popen[bytes]:
        program = filter_program()
        if program is None:
            return self._popen(_bwrap(self.program, modules, None), {}, ())
        read, write = os.pipe()
        try:
            os.write(write, program)
            os.close(write)
            return self._popen(_bwrap(self.program, modules, read), {}, (read,))
        finally:
            os.close(read)

    def _popen(
        self, command: Sequence[str], env: dict[str, str], fds: tuple[int, ...]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own command
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd="/",
            pass_fds=fds,
            start_new_session=True,
        )


@cache
def compiled(name: str) -> CodeType:
    """Return a program of this folder, compiled for the interpreter inside, which is our own."""
    path = Path(__file__).with_name(name)
    return compile(path.read_text(), name, "exec", dont_inherit=True)


@cache
def boundary(kind: str = "auto") -> Boundary:
    """Return a wall that stands here; `kind` names one to insist on.

    Raises MissingDependency where none does: model-written code is never run bare.
    """
    program = os.path.realpath(sys.executable)
    for name in KINDS if kind == "auto" else (kind,):
        found = Boundary(name, program)
        if _stands(found):
            return found
    raise MissingDependency(
        "a sandbox that works here (bubblewrap with user namespaces, or a kernel with Landlock)",
        needed_for="running model-written code",
        install=INSTALL,
    )


def _stands(wall: Boundary) -> bool:
    """Try the wall with a job of no tests."""
    from convbench.sandbox.run import Limits, starts

    if wall.kind == "bubblewrap" and shutil.which("bwrap") is None:
        return False
    if wall.kind == "landlock" and (confine.version() < 1 or filter_program(alone=True) is None):
        return False
    return starts(wall, Limits())


def _bwrap(program: str, modules: tuple[str, ...], seccomp: int | None) -> list[str]:
    command = [
        "bwrap", "--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534",
        "--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
        "--clearenv",
    ]  # fmt: skip
    command[0] = shutil.which("bwrap") or "bwrap"
    for name, value in _CLEAN.items():
        command += ["--setenv", name, value]
    for place in readable(program):
        command += ["--ro-bind", place, place]
    for place in hidden():
        command += ["--tmpfs", place]
    for place in packages(modules):
        command += ["--ro-bind", place, place]
    command += [
        "--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp",  # noqa: S108 - inside
        "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom",
    ]  # fmt: skip
    for place in hidden():
        command += ["--remount-ro", place]
    command += ["--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108
    if seccomp is not None:
        command += ["--seccomp", str(seccomp)]
    return [*command, program, *_PLAIN]


def readable(program: str) -> list[str]:
    """Return the files and folders that the interpreter itself needs, those that exist."""
    library = os.path.join(
        str(sysconfig.get_config_var("LIBDIR") or ""),
        str(sysconfig.get_config_var("INSTSONAME") or ""),
    )
    system = str(sysconfig.get_config_var("MULTIARCH") or "")
    wanted = [program, sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    wanted += [library] if os.path.isfile(library) else []
    wanted += [os.path.join("/lib", system), os.path.join("/usr/lib", system)]
    wanted += ["/lib64", "/usr/lib64"]
    return [place for place in dict.fromkeys(wanted) if os.path.exists(place)]


def hidden() -> list[str]:
    """Return folders within those that hold others' packages."""
    stdlib = sysconfig.get_path("stdlib")
    names = ("site-packages", "dist-packages")
    return [p for p in (os.path.join(stdlib, name) for name in names) if os.path.isdir(p)]


def _opened(program: str) -> list[str]:
    """Return `readable`, with a folder that holds a hidden one replaced by its other contents:
    what Landlock opens, it opens to the leaves."""
    found = []
    shut = hidden()
    for place in readable(program):
        if any(os.path.dirname(other) == place for other in shut):
            inside = (os.path.join(place, name) for name in os.listdir(place))
            found += [item for item in inside if item not in shut]
        else:
            found.append(place)
    return found


@cache
def packages(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return where the modules asked for lie, with the libraries beside them; those not
    installed are left out."""
    found = []
    for name in modules:
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places and spec and spec.origin and os.path.isfile(spec.origin):
            places = [spec.origin]
        found += [place for place in places if os.path.exists(place)]
        found += [f"{place}.libs" for place in places if os.path.isdir(f"{place}.libs")]
    return tuple(dict.fromkeys(found))
