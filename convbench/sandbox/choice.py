"""Which wall stands on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from functools import cache

from convbench.errors import MissingDependency
from convbench.sandbox import confine
from convbench.sandbox.boundary import INSTALL, KINDS, Boundary
from convbench.sandbox.once import Limits, starts
from convbench.sandbox.seccomp import filter_program


@cache
def boundary(kind: str = "auto") -> Boundary:
    """Return a wall that stands here; `kind` names one to insist on.

    Raises MissingDependency where none does: model-written code is never run bare.
    """
    program = os.path.realpath(sys.executable)
    as_root = (True, False) if os.geteuid() == 0 else (False,)
    for name in KINDS if kind == "auto" else (kind,):
        for root in as_root:
            found = Boundary(name, program, root)
            if _stands(found):
                return found
    raise MissingDependency(
        "a sandbox that works here (bubblewrap with user namespaces, or a kernel with Landlock)",
        needed_for="running model-written code",
        install=INSTALL,
    )


def _stands(wall: Boundary) -> bool:
    """Try the wall with a job of no tests."""
    if wall.kind == "bubblewrap" and shutil.which("bwrap") is None:
        return False
    if wall.kind == "landlock" and (confine.version() < 1 or filter_program(alone=True) is None):
        return False
    return starts(wall, Limits())
