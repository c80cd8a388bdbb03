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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import CodeType
from typing import Any

from convbench.sandbox import cgroup
from convbench.sandbox.seccomp import filter_program


@cache
def readable_paths(program: str) -> tuple[str, ...]:
    """Return the existing files and folders that the interpreter `program` itself needs, itself
    first.

    They are those of the running Python: its standard library, its extensions and the system's
    libraries.
    """
    library = os.path.join(
        str(sysconfig.get_config_var("LIBDIR") or ""),
        str(sysconfig.get_config_var("INSTSONAME") or ""),
    )
    system = str(sysconfig.get_config_var("MULTIARCH") or "")
    paths = [
        program,
        sysconfig.get_path("stdlib"),
        str(sysconfig.get_config_var("DESTSHARED") or ""),
    ]
    paths += [library] if os.path.isfile(library) else []
    paths += [os.path.join("/lib", system), os.path.join("/usr/lib", system)]
    paths += ["/lib64", "/usr/lib64"]
    return tuple(path for path in dict.fromkeys(paths) if os.path.exists(path))


@cache
def hidden_folders() -> tuple[str, ...]:
    """Return the existing site-packages and dist-packages within the standard library's folder;
    else empty."""
    stdlib = sysconfig.get_path("stdlib")
    names = ("site-packages", "dist-packages")
    return tuple(p for p in (os.path.join(stdlib, name) for name in names) if os.path.isdir(p))


@cache
def landlock_paths(program: str) -> tuple[str, ...]:
    """Return `readable_paths` for Landlock, which opens a folder with everything below it.

    A folder that directly contains a hidden one is replaced by its other entries.
    """
    paths = []
    shut = hidden_folders()
    for path in readable_paths(program):
        if any(os.path.dirname(other) == path for other in shut):
            inside = (os.path.join(path, name) for name in os.listdir(path))
            paths += [item for item in inside if item not in shut]
        else:
            paths.append(path)
    return tuple(paths)


@cache
def package_paths(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the paths of the modules, of all modules that they require, and of their libraries
    (NAME.libs).

    Modules that are not installed are left out, and no path comes twice. Without modules it is
    empty.
    """
    paths = []
    for name in _with_needs(modules):
        spec = importlib.util.find_spec(name)
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places and spec and spec.origin and os.path.isfile(spec.origin):
            places = [spec.origin]
        paths += [path for path in places if os.path.exists(path)]
        paths += [f"{path}.libs" for path in places if os.path.isdir(f"{path}.libs")]
    return tuple(dict.fromkeys(paths))


def _with_needs(modules: tuple[str, ...]) -> list[str]:
    """Return the modules, followed by the modules of all distributions that they require."""
    needed = list(modules)
    owners = metadata.packages_distributions() if modules else {}
    parts: dict[str, list[str]] = {}
    for module, names in owners.items():
        for name in names if module.isidentifier() else ():
            parts.setdefault(_canonical_name(name), []).append(module)
    for module in needed:  # it grows
        for line in (line for name in owners.get(module, ()) for line in _requirements_of(name)):
            needed += [part for part in parts.get(_canonical_name(line), ()) if part not in needed]
    return needed


def _requirements_of(name: str) -> list[str]:
    """Return a distribution's requirements, without those of its extras."""
    return [line for line in metadata.requires(name) or () if "extra" not in line.partition(";")[2]]


def _canonical_name(requirement: str) -> str:
    """Return the distribution name in a requirement, normalised as the packaging standards do."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


_CHILD = re.compile(rb'"child-pid": (\d+)')
ENDS_S = 10.0
"""Longest wait for bubblewrap to end after the process that it started."""


@dataclass(frozen=True, slots=True)
class SandboxProcess:
    """A process in the sandbox; its stdin and stdout are pipes to us."""

    process: subprocess.Popen[bytes]
    info: int | None = None
    """Descriptor from which bubblewrap's report of the first inner process id is read."""
    group: Path | None = None
    """Its control group."""

    def end(self) -> None:
        """Kill the process and everything in its sandbox, close its pipes, and return before it is
        gone.

        A thread waits for its end, since removing namespaces takes as long as many a test. Call it
        once.
        """
        first = self._first_pid()
        try:
            os.kill(first, signal.SIGKILL) if first else self.process.kill()
        except ProcessLookupError:
            pass
        finally:
            self._close_pipes()
            cgroup.end_group(self.group)
            threading.Thread(target=self._wait_for_exit, args=(first,), daemon=True).start()

    def _first_pid(self) -> int | None:
        """Return the id of the first process inside; None if it is not known."""
        if self.info is None or not select.select([self.info], [], [], ENDS_S)[0]:
            return None
        match = _CHILD.search(os.read(self.info, 1 << 12))
        return int(match[1]) if match else None

    def _wait_for_exit(self, first: int | None) -> None:
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

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.info is not None:
            os.close(self.info)


def start_process(
    command: Sequence[str], env: dict[str, str], fds: tuple[int, ...] = ()
) -> subprocess.Popen[bytes]:
    """Return a command started in a new session in `/`, with pipes to its stdin and from its
    stdout.

    Its environment is `env` only, its stderr is discarded, and it inherits the descriptors `fds`.
    Raise OSError if it cannot be started.
    """
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
_PYTHON_ARGUMENTS = (
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

    def choose_user(self) -> int | None:
        """Return a random unused user number for the program inside; None without root."""
        return secrets.choice(NOBODY) if self.root else None

    def max_threads(self) -> int:
        """Return the most threads of the user inside: 64, but 4096 if it is ours, which has other
        threads.

        It is ours with Landlock without root.
        """
        return 64 if self.root or self.kind == "bubblewrap" else 4096

    def start_program(self, modules: tuple[str, ...], memory: int) -> SandboxProcess:
        """Return a started interpreter inside, limited to `memory` bytes; on stdin it reads a
        program and its job.

        It may read `modules` and what they require. Raise OSError if it cannot be started.
        """
        group = cgroup.make_group(memory + SCRATCH_BYTES + BESIDE_BYTES, BESIDE_TASKS + 64)
        if self.kind != "bubblewrap":
            command = cgroup.enter_command(group, [self.program, *_PYTHON_ARGUMENTS])
            return SandboxProcess(start_process(command, _CLEAN), None, group)
        read, write = os.pipe()
        try:
            command = cgroup.enter_command(group, self._bwrap_command(modules, write))
            return SandboxProcess(start_process(command, {}, (write,)), read, group)
        except OSError:
            os.close(read)
            cgroup.end_group(group)
            raise
        finally:
            os.close(write)

    def confine_settings(self, modules: tuple[str, ...], user: int | None) -> dict[str, Any]:
        """Return the settings with which the program inside confines itself, for `confine.confine`.

        The keys are `code` (that program, compiled), `user`, `scratch` and `filter`, with
        bubblewrap also `files`, else `read` and `list`.
        """
        settings = {"code": compile_program("confine.py"), "user": user, "scratch": None}
        if self.kind == "bubblewrap":
            caps = {"scratch": SCRATCH, "files": SCRATCH_FILES}
            return settings | caps | {"filter": filter_program()}
        paths = package_paths(modules)
        return settings | {
            "read": [*landlock_paths(self.program), *paths, "/dev/null", "/dev/urandom"],
            "list": sorted({*map(os.path.dirname, paths), *map(os.path.dirname, hidden_folders())}),
            "filter": filter_program(alone=True),
        }

    def _bwrap_command(self, modules: tuple[str, ...], info: int) -> list[str]:
        command = [shutil.which("bwrap") or "bwrap", *isolation_options(self.root, _CLEAN)]
        command += ["--cap-add", "CAP_SYS_ADMIN"]  # to cap the scratch folder
        command += ["--info-fd", str(info)]
        # First, because interpreter and modules may lie in it.
        command += ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
        seen = readable_paths(self.program)
        for folder in parent_folders([*seen, *package_paths(modules), "/dev/null"], ("/", SCRATCH)):
            command += ["--perms", "0755", "--dir", folder]
        for path in seen:
            command += ["--ro-bind", path, path]
        for path in hidden_folders():
            command += ["--perms", "0755", "--tmpfs", path]
        for path in package_paths(modules):
            command += ["--ro-bind", path, path]
        command += ["--dev-bind", "/dev/null", "/dev/null"]
        command += ["--dev-bind", "/dev/urandom", "/dev/urandom"]
        for path in hidden_folders():
            command += ["--remount-ro", path]
        command += ["--remount-ro", "/", "--chdir", SCRATCH]
        return [*command, self.program, *_PYTHON_ARGUMENTS]


def isolation_options(as_root: bool, settings: Mapping[str, str]) -> list[str]:
    """Return bubblewrap's options for a process without network and capabilities and with these
    settings only.

    The settings are its environment. Root keeps what it takes to become another user; others become
    user 65534. Files are not bound.
    """
    options = [
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
    ]
    if as_root:  # to become another user, which ends every privilege
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    for name, value in settings.items():
        options += ["--setenv", name, value]
    return options


@cache
def compile_program(name: str) -> CodeType:
    """Return the compiled code of a file in this folder, kept for the process.

    It runs only in the same version of Python, which the one inside is.
    """
    path = Path(__file__).with_name(name)
    return compile(path.read_text(), name, "exec", dont_inherit=True)


def parent_folders(places: Sequence[str], present: Collection[str]) -> list[str]:
    """Return all parent folders of these paths, each once and after its own parents, without those
    `present`."""
    folders = [str(folder) for path in places for folder in reversed(Path(path).parents)]
    return [folder for folder in dict.fromkeys(folders) if folder not in present]
