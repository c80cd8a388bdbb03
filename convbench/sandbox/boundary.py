"""The wall around model-written code: bubblewrap where namespaces are to be had, else Landlock.

Neither needs root or a container daemon. Where neither works nothing is run: `boundary` raises
MissingDependency with the command that mends it.

Inside there is no network, no environment, no /proc, no process but the one, and no file but the
interpreter's own and the modules that were asked for, all read-only; with bubblewrap also a
scratch folder in memory (/tmp) of SCRATCH_BYTES and SCRATCH_FILES, with Landlock none. Run by
root, the program inside takes the number of a user that nobody has: the kernel does not count
root's threads, and what belongs to root is not its own.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

from convbench.sandbox import cgroup
from convbench.sandbox.places import hidden, opened, packages, readable
from convbench.sandbox.seccomp import filter_program
from convbench.sandbox.walled import Walled, popen

SCRATCH, SCRATCH_BYTES, SCRATCH_FILES = "/tmp", 16 << 20, 2000  # noqa: S108 - inside
BESIDE_BYTES, BESIDE_TASKS = 96 << 20, 16
"""What a control group gives beside the code's own: to the kernel, to bubblewrap."""
KINDS = ("bubblewrap", "landlock")
INSTALL = "apt-get install bubblewrap"
NOBODY = range(1_900_000_000, 2_000_000_000)
"""User numbers that no one hands out; every sandbox that root starts takes one of them."""
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
    root: bool = False
    """Whether it is built with root's privileges, which the program inside then gives up."""

    def user(self) -> int | None:
        """Return the number of the user that the program inside becomes, another one each time;
        None where it stays who it is."""
        return secrets.choice(NOBODY) if self.root else None

    def threads(self) -> int:
        """Return how many threads there may be: those inside where its user is its own, else
        those of the user who runs us, who has others."""
        return 64 if self.root or self.kind == "bubblewrap" else 4096

    def start(self, modules: tuple[str, ...], memory: int) -> Walled:
        """Start the program inside, which may fill so many bytes; it waits for its job on stdin."""
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
        """Return what the program inside shuts by itself (`confine.confine`)."""
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
        command = [shutil.which("bwrap") or "bwrap", "--unshare-ipc", "--unshare-pid",
                   "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
                   "--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv",
                   "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN",  # to cap the scratch folder
                   "--info-fd", str(info)]  # fmt: skip
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
    """Return a program of this folder, compiled for the interpreter inside, which is our own."""
    path = Path(__file__).with_name(name)
    return compile(path.read_text(), name, "exec", dont_inherit=True)


def _above(places: Sequence[str]) -> list[str]:
    """Return the folders that lead to these places, outermost first."""
    found = [str(folder) for place in places for folder in reversed(Path(place).parents)]
    return [folder for folder in dict.fromkeys(found) if folder not in ("/", SCRATCH)]
