"""The sandbox around model-written code: bubblewrap if namespaces are available, else Landlock.

This file says which of the host's files are readable inside, and starts and ends the process.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any

from convbench.sandbox import cgroup
from convbench.sandbox.seccomp import filter_program


@cache
def readable(program: str) -> tuple[str, ...]:
    """Return the existing files and folders that the interpreter itself needs."""
    library = os.path.join(
        str(sysconfig.get_config_var("LIBDIR") or ""),
        str(sysconfig.get_config_var("INSTSONAME") or ""),
    )
    system = str(sysconfig.get_config_var("MULTIARCH") or "")
    wanted = [
        program,
        sysconfig.get_path("stdlib"),
        str(sysconfig.get_config_var("DESTSHARED") or ""),
    ]
    wanted += [library] if os.path.isfile(library) else []
    wanted += [os.path.join("/lib", system), os.path.join("/usr/lib", system)]
    wanted += ["/lib64", "/usr/lib64"]
    return tuple(place for place in dict.fromkeys(wanted) if os.path.exists(place))


@cache
def hidden() -> tuple[str, ...]:
    """Return the folders of installed packages within the standard library's folder."""
    stdlib = sysconfig.get_path("stdlib")
    names = ("site-packages", "dist-packages")
    return tuple(p for p in (os.path.join(stdlib, name) for name in names) if os.path.isdir(p))


@cache
def opened(program: str) -> tuple[str, ...]:
    """Return the readable paths for Landlock, which opens a folder with everything below it: a
    folder that contains a hidden one is replaced by its other entries."""
    found = []
    shut = hidden()
    for place in readable(program):
        if any(os.path.dirname(other) == place for other in shut):
            inside = (os.path.join(place, name) for name in os.listdir(place))
            found += [item for item in inside if item not in shut]
        else:
            found.append(place)
    return tuple(found)


@cache
def packages(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of the modules, of the modules that they require, and of their bundled
    libraries (NAME.libs); modules that are not installed are left out."""
    found = []
    for name in _with_needs(modules):
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places and spec and spec.origin and os.path.isfile(spec.origin):
            places = [spec.origin]
        found += [place for place in places if os.path.exists(place)]
        found += [f"{place}.libs" for place in places if os.path.isdir(f"{place}.libs")]
    return tuple(dict.fromkeys(found))


def _with_needs(modules: tuple[str, ...]) -> list[str]:
    """Return the modules, followed by the modules of all distributions that they require."""
    wanted = list(modules)
    owners = metadata.packages_distributions() if modules else {}
    parts: dict[str, list[str]] = {}
    for module, names in owners.items():
        for name in names if module.isidentifier() else ():
            parts.setdefault(_canonical(name), []).append(module)
    for module in wanted:  # it grows
        for line in (line for name in owners.get(module, ()) for line in _requires(name)):
            wanted += [part for part in parts.get(_canonical(line), ()) if part not in wanted]
    return wanted


def _requires(name: str) -> list[str]:
    """Return a distribution's requirements, without those of its extras."""
    return [line for line in metadata.requires(name) or () if "extra" not in line.partition(";")[2]]


def _canonical(requirement: str) -> str:
    """Return the distribution name in a requirement, normalised as the packaging standards do."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


_CHILD = re.compile(rb'"child-pid": (\d+)')
ENDS_S = 10.0
"""Longest wait for bubblewrap to end after the process that it started."""


@dataclass(frozen=True, slots=True)
class Walled:
    """A process in the sandbox; its stdin and stdout are pipes to us."""

    process: subprocess.Popen[bytes]
    info: int | None = None
    """Descriptor from which bubblewrap's report of the first inner process id is read."""
    group: Path | None = None
    """Its control group."""

    def end(self) -> None:
        """Kill the process and clean up. A thread waits for its end, since removing namespaces
        takes as long as many a test."""
        first = self._first()
        try:
            os.kill(first, signal.SIGKILL) if first else self.process.kill()
        except ProcessLookupError:
            pass
        finally:
            self._close()
            cgroup.end(self.group)
            threading.Thread(target=self._wait, args=(first,), daemon=True).start()

    def _first(self) -> int | None:
        """Return the id of the first process inside; None if it is not known."""
        if self.info is None or not select.select([self.info], [], [], ENDS_S)[0]:
            return None
        found = _CHILD.search(os.read(self.info, 1 << 12))
        return int(found[1]) if found else None

    def _wait(self, first: int | None) -> None:
        """Wait for bubblewrap, and for the inner process if bubblewrap ended before it: where we
        adopt orphans, as process 1 of a container does, it would stay a zombie."""
        try:
            self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if first:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(first, 0)

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.info is not None:
            os.close(self.info)


def popen(
    command: Sequence[str], env: dict[str, str], fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Return a command started in a new session, with pipes to its stdin and from its stdout."""
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


SCRATCH, SCRATCH_BYTES, SCRATCH_FILES = "/tmp", 16 << 20, 2000  # noqa: S108 - inside
BESIDE_BYTES, BESIDE_TASKS = 96 << 20, 16
"""Memory and tasks of a control group beyond the code's own: for the kernel and bubblewrap."""
KINDS = ("bubblewrap", "landlock")
INSTALL = "apt-get install bubblewrap"
NOBODY = range(1_900_000_000, 2_000_000_000)
"""User numbers that nothing else assigns; every sandbox that root starts takes one of them."""
_CLEAN = {
    "PYTHONHASHSEED": "0",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "HOME": "/tmp",  # noqa: S108 - inside
    "LANG": "C.UTF-8",
}
_PLAIN = (
    "-P",
    "-s",
    "-S",
    "-B",
    "-c",
    "import marshal, sys; exec(marshal.load(sys.stdin.buffer))",
)
"""No packages and no path of the caller's; the environment is ours, so that hashing is repeatable.
The program is sent compiled, since compiling takes longer than most tests."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A kind of sandbox for this machine."""

    kind: str
    """`bubblewrap` or `landlock`."""
    program: str
    """The interpreter that runs inside."""
    root: bool = False
    """Whether it is set up with root's privileges, which the program inside then gives up."""

    def user(self) -> int | None:
        """Return a random unused user number for the program inside; None without root."""
        return secrets.choice(NOBODY) if self.root else None

    def threads(self) -> int:
        """Return the limit on threads of the user: small if the sandbox has a user of its own,
        large if it shares ours, which has other threads."""
        return 64 if self.root or self.kind == "bubblewrap" else 4096

    def start(self, modules: tuple[str, ...], memory: int) -> Walled:
        """Return the started program inside, limited to `memory` bytes; it reads its job on stdin.

        Raises OSError."""
        group = cgroup.make(memory + SCRATCH_BYTES + BESIDE_BYTES, BESIDE_TASKS + 64)
        if self.kind != "bubblewrap":
            command = cgroup.inside(group, [self.program, *_PLAIN])
            return Walled(popen(command, _CLEAN), None, group)
        read, write = os.pipe()
        try:
            command = cgroup.inside(group, self._bwrap(modules, write))
            return Walled(popen(command, {}, (write,)), read, group)
        except OSError:
            os.close(read)
            cgroup.end(group)
            raise
        finally:
            os.close(write)

    def settings(self, modules: tuple[str, ...], user: int | None) -> dict[str, Any]:
        """Return the settings with which the program inside confines itself (`confine.confine`)."""
        settings = {"code": compiled("confine.py"), "user": user, "scratch": None}
        if self.kind == "bubblewrap":
            caps = {"scratch": SCRATCH, "files": SCRATCH_FILES}
            return settings | caps | {"filter": filter_program()}
        found = packages(modules)
        return settings | {
            "read": [*opened(self.program), *found, "/dev/null", "/dev/urandom"],
            "list": sorted({*map(os.path.dirname, found), *map(os.path.dirname, hidden())}),
            "filter": filter_program(alone=True),
        }

    def _bwrap(self, modules: tuple[str, ...], info: int) -> list[str]:
        command = [
            shutil.which("bwrap") or "bwrap",
            "--unshare-ipc",
            "--unshare-pid",
            "--unshare-net",
            "--unshare-uts",
            "--unshare-cgroup-try",
            "--hostname",
            "sandbox",
            "--die-with-parent",
            "--new-session",
            "--clearenv",
            "--cap-drop",
            "ALL",
            "--cap-add",
            "CAP_SYS_ADMIN",  # to cap the scratch folder
            "--info-fd",
            str(info),
        ]
        if self.root:  # to become another user, which ends every privilege
            command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
        for name, value in _CLEAN.items():
            command += ["--setenv", name, value]
        # First, because interpreter and modules may lie in it.
        command += ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
        seen = readable(self.program)
        for folder in _above([*seen, *packages(modules), "/dev/null"]):
            command += ["--perms", "0755", "--dir", folder]
        for place in seen:
            command += ["--ro-bind", place, place]
        for place in hidden():
            command += ["--perms", "0755", "--tmpfs", place]
        for place in packages(modules):
            command += ["--ro-bind", place, place]
        command += ["--dev-bind", "/dev/null", "/dev/null"]
        command += ["--dev-bind", "/dev/urandom", "/dev/urandom"]
        for place in hidden():
            command += ["--remount-ro", place]
        command += ["--remount-ro", "/", "--chdir", SCRATCH]
        return [*command, self.program, *_PLAIN]


@cache
def compiled(name: str) -> CodeType:
    """Return the code of a program in this folder; the interpreter inside is the same as ours."""
    path = Path(__file__).with_name(name)
    return compile(path.read_text(), name, "exec", dont_inherit=True)


def _above(places: Sequence[str]) -> list[str]:
    """Return the parent folders of these paths, outermost first."""
    found = [str(folder) for place in places for folder in reversed(Path(place).parents)]
    return [folder for folder in dict.fromkeys(found) if folder not in ("/", SCRATCH)]
