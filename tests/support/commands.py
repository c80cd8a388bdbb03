"""Commands in processes of their own that need not import everything anew.

A server (multiprocessing's fork server) imports the command line once for all tests of a worker and
forks for each command: a whole process with its own folder, environment and end, without the third
of a second that a start takes. What a start itself does is tested with real ones.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

PRELOAD = ["tests.support.preloaded"]
_context: ForkServerContext | None = None


def run_command(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], longest: float
) -> tuple[int | None, str, str]:
    """Run `convbench WORDS` to its end; return its exit code (negative: the signal that ended it,
    None: it was killed after `longest` seconds), stdout and stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = fork_server(environment).Process(
            target=_typed,
            args=(list(words), str(folder), dict(environment), _Handle(out), _Handle(err)),
        )
        process.start()
        process.join(longest)
        if process.exitcode is None:
            process.kill()
            process.join()
            code = None
        else:
            code = process.exitcode
        out.seek(0)
        err.seek(0)
        return code, out.read().decode(), err.read().decode()


class _Handle:
    """A file that goes to the process as its own descriptor."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __reduce__(self) -> Any:
        from multiprocessing.reduction import DupFd

        return _descriptor, (DupFd(self._file.fileno()),)


def _descriptor(duplicate: Any) -> int:
    return int(duplicate.detach())


def fork_server(environment: Mapping[str, str]) -> ForkServerContext:
    """Return the context whose server has imported the command line, in this environment."""
    global _context
    if _context is None:
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(environment)
        try:
            _context = multiprocessing.get_context("forkserver")
            _context.set_forkserver_preload(PRELOAD)
            from multiprocessing.forkserver import ensure_running

            ensure_running()
        finally:
            os.environ.clear()
            os.environ.update(before)
    return _context


def _typed(words: list[str], folder: str, environment: dict[str, str], out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["convbench", *words]
    sys.path[0] = folder
    from convbench.__main__ import main

    try:
        main()
    finally:
        sys.stdout and sys.stdout.flush()
        atexit._run_exitfuncs()
