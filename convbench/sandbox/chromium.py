"""The system's Chromium, and the command that starts it behind a wall.

Behind bubblewrap it has no network but a loopback of its own, sees programs, libraries and fonts
read-only and a scratch folder in memory of SCRATCH_BYTES, and, started by root, is a user that
nobody else is. Where no namespaces are to be had it runs bare: with the same limits of memory and
time, and Chromium's own sandbox unless root starts it, but with the host's files and network in
reach of a page that breaks out of Chromium. No process of it may hold more than DATA_BYTES.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convbench.errors import MissingDependency
from convbench.sandbox.boundary import NOBODY

INSTALL = "apt-get install chromium"
SCRATCH, SCRATCH_BYTES = "/tmp", 256 << 20  # noqa: S108 - inside
"""Holds the profile and all memory that Chromium's processes share."""
DATA_BYTES = 1152 << 20
"""Writable memory of one process, of which a tab's engine reserves 600 MiB and fills little."""
_SEEN = ("/usr", "/etc/fonts", "/etc/ld.so.cache", "/etc/alternatives", "/var/cache/fontconfig")
_LINKS = ("/bin", "/lib", "/lib64")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_SETTINGS = {"HOME": SCRATCH, "PATH": os.defpath, "LANG": "C.UTF-8"}


def chromium() -> str:
    """Return the system's Chromium, the program itself where a script wraps it."""
    inner = "/usr/lib/chromium/chromium"
    found = inner if os.access(inner, os.X_OK) else None
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = found or shutil.which(name)
    if found is None:
        raise MissingDependency("Chromium", needed_for="rendering pages", install=INSTALL)
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start it."""

    wall: bool
    """Whether behind bubblewrap."""
    user: bool
    """Whether root gives it a user of its own."""
    inner: bool
    """Whether Chromium's own sandbox stands too."""

    def lacks(self) -> str:
        """Return what it lacks beside the safest way, in words; empty where it is the safest."""
        lacks = [] if self.wall else ["bubblewrap around Chromium"]
        if self.wall and os.geteuid() == 0 and not self.user:
            lacks.append("a user of their own")
        if not self.inner:
            lacks.append("Chromium's own sandbox")
        return " and ".join(lacks)

    def script(self, program: str, mark: Path, words: Path, group: Path | None) -> str:
        """Return a shell script that writes its own number to `mark` and what it says to `words`,
        enters a control group, limits what each process holds and becomes Chromium with its
        arguments."""
        command = [program] if not self.wall else [*_wall(program, self.user), program]
        enter = f"echo $$ >{shlex.quote(str(group / 'cgroup.procs'))} || exit 1\n" if group else ""
        return (
            f"#!/bin/sh\nexec 2>{shlex.quote(str(words))}\n"
            f"echo $$ >{shlex.quote(str(mark))} || exit 1\n"
            f"{enter}ulimit -c 0; ulimit -d {DATA_BYTES >> 10} || exit 1\n"
            f'exec {shlex.join(command)} "$@"\n'
        )


def ways() -> list[Way]:
    """Return the ways to start it, the safest first."""
    root, wraps = os.geteuid() == 0, shutil.which("bwrap") is not None
    found = [Way(True, True, inner) for inner in (True, False)] if root and wraps else []
    found += [Way(True, False, inner) for inner in (True, False)] if wraps else []
    return [*found, Way(False, False, not root)]


def _wall(program: str, user: bool) -> list[str]:
    """Return the command that builds the wall and runs what follows it."""
    command = ["bwrap", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts",
               "--unshare-cgroup-try", "--hostname", "sandbox", "--die-with-parent",
               "--new-session", "--clearenv", "--cap-drop", "ALL"]  # fmt: skip
    if user:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    for name, value in _SETTINGS.items():
        command += ["--setenv", name, value]
    command += ["--perms", "1777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
    command += [*_files(program), "--proc", "/proc", "--remount-ro", "/", "--chdir", SCRATCH, "--"]
    return command + (_as_nobody() if user else [])


def _files(program: str) -> list[str]:
    """Return the options that show it programs, libraries, fonts and four devices."""
    own = str(Path(program).resolve().parent)
    seen = [p for p in (*_SEEN, own) if os.path.exists(p) and (p == "/usr" or not _within(p))]
    links = [place for place in _LINKS if os.path.islink(place)]
    seen += [place for place in _LINKS if place not in links and os.path.isdir(place)]
    out = []
    for folder in _above([*seen, *_DEVICES]):
        out += ["--perms", "0755", "--dir", folder]
    for place in seen:
        out += ["--ro-bind", place, place]
    for place in links:
        out += ["--symlink", os.readlink(place), place]
    for place in _DEVICES:
        out += ["--dev-bind", place, place]
    return out


def _within(place: str) -> bool:
    return place.startswith("/usr/")


def _above(places: Sequence[str]) -> list[str]:
    found = [str(folder) for place in places for folder in reversed(Path(place).parents)]
    return [folder for folder in dict.fromkeys(found) if folder not in ("/", "/usr")]


def _as_nobody() -> list[str]:
    """Return the command that gives up root for a number that nobody has."""
    number = str(secrets.choice(NOBODY))
    return ["setpriv", "--reuid", number, "--regid", number, "--clear-groups"]
